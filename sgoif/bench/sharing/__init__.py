"""Takes results out of a run and brings them in: partial runs, published copies and MLflow.

* `export.export_records`: the records of all finished cells of `results/<run>` in one small file, a partial run.
* `records_file.pack_records`: several partial runs in `results/published/records/<run>.json.gz`.
* `merge.merge_records`: one run, `results/<run>`, from several partial runs.
* `publish.publish`: a copy of tables, figures and provenance in `results/published/<run>`.
* `mlflow_import.import_run`: every cell as an MLflow run; the store is `results/<run>/mlflow` or a server.
"""
