"""The page for reviewing, `gallery.html`: one file with pictures, labels and scripts inside, which loads nothing else.

Way in: `gallery.write_gallery`, and `explain_page.write_page` for the page of `sgoif explain`.
Holds: what the page shows (`gallery`, `pictures`, `class_names`) and its parts `gallery.html`, `*.css` and `*.js`.
"""
