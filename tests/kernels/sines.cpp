// The sines and cosines of the compiled maps by themselves, for test_maps.py.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tasks.h"
#define GOMHC_VECTOR_BYTES 16
#include "lanes.h"
#include "exponential.h"

extern "C" void sines_and_cosines(const double *angles, double *sines, double *cosines, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        Doubles sine, cosine;
        sine_and_cosine(Doubles{} + angles[i], sine, cosine);
        sines[i] = sine[HALF - 1], cosines[i] = cosine[HALF - 1];
    }
}
