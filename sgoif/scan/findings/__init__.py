"""What a scan finds beside single wrong labels.

Way in: `classes.find_class_issues`, for report.json.
"""
