"""What a computation costs: seconds by timer (`timers`), images through networks (`compute_counter`), `peak_memory`.

Reads and writes times.npz in the session's folder, if it is told where that is.
"""
