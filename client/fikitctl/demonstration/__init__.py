"""The demonstration: recorded workloads replayed by two tenants, alone, as equals, and by priority.

| file            | what                                                             |
|-----------------|------------------------------------------------------------------|
| `workloads`     | the trace file: what was recorded, with its host times scaled    |
| `shapes`        | how a recorded kernel is replayed on a machine, as a timed one   |
| `timed_kernels` | their PTX                                                        |
| `replay`        | the loop: one operation after the other, at its time             |
| `tenant`        | a process that replays one workload in one session               |
| `phases`        | the two processes, phase by phase                                |
| `results`       | what came of it, as JSON and as a table                          |

All times are the device's; a device's ``time_scale`` says how long the host has to wait for them.
"""
