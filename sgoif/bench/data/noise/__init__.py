"""Label noise: specifications, noise matrices and noisy labels.

Way in: `corrupt.corrupt(true_labels, n_classes, spec)`. `matrix.noise_matrix` draws a class-conditional noise matrix;
`spec.check_spec` checks a specification without any data. Reads and writes no files: `data/noisy_labels.py` does.
"""
