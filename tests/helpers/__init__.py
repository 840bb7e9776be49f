"""Helpers of the tests.

`digit_tasks`: real tasks on scikit-learn's digits. `networks`: tiny models and a training loop for the method.
`fake_runs`: a run directory without training. `project_copy`: a copy of the checkout and a shell in it.
`tiny_archives`, `tiny_image_folders`, `scan_folders`: small data in real formats. `table_checks`: rules of tables.
`simulated_cuda_graphs`: CUDA graphs on a CPU. `lost_interrupts`: ways to lose a Ctrl-C. `browser`: Chromium.
"""
