// cuda.h for headers of ../../shim that the implementers of its functions include too.
#pragma once

#include <cuda.h>
