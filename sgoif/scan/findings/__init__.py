"""What a scan finds beside single wrong labels: for the page, for report.json and for the command's summary.

Way in: `classes.find_class_issues` for whole classes, `find.find_all` for copies under several labels and outliers.
"""
