"""Datasets: what is known about them (registry), how they get here (download, prepare) and how they are read (load)."""
