"""Steps of many launches with the host's work in between; then waits until standard input ends."""

import sys
import time

from calls import KERNELS, done, launch, start
from cuda.bindings import driver

start()
nothing = done(driver.cuModuleGetFunction(done(driver.cuModuleLoadData(KERNELS)), b"nothing"))
stream = done(driver.cuStreamCreate(1))
for _ in range(30):
    for _ in range(100):
        launch(nothing, stream)
        time.sleep(1e-4)
    done(driver.cuStreamSynchronize(stream))
print("stepped", flush=True)
sys.stdin.read()
