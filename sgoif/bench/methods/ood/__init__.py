"""What several OOD methods share.

Way in: `features` reads a trained network (features, outputs of its stages, nearest neighbours), `class_gaussians`
measures Mahalanobis distances, `softened` is the base of scores with a temperature, `kmeans` clusters, and `fractals`
draws the mixing set of PixMix.
Reads and writes no files.
"""
