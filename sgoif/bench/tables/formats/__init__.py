"""A table as Markdown, LaTeX, CSV and JSON.

Way in: `table_files.write_table`, which writes all four of one `model.Table`; `markdown` and `latex` return texts.
"""
