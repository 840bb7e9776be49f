"""Solvers of H phi_v = g_v for all anchors at once, and the control of their steps.

`Directions` is the way in: at every check it measures, certifies, steps and refines the directions phi_v and combines
them into the scoring direction. `schedule` spaces the checks, `stability` sets tolerance, confidence and step sizes,
`iterative` and `sketch` hold the linear solvers. No files are read or written.
"""
