"""For people with a folder of labelled images: `sgoif scan`, `sgoif apply`, `sgoif explain`."""
