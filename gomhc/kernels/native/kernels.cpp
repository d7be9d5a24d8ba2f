// Fast CPU versions of gomhc's operations. No torch headers: plain pointers in, so it is tied to no version of torch.
// The same code is compiled for several instruction sets, and the best one that the machine has is chosen at run time.

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "pool.h"
#include "tasks.h"

namespace {

namespace baseline {  // SSE2 on x86-64, NEON on arm64
#define GOMHC_VECTOR_BYTES 16
#include "lanes.h"
#include "map.h"
#include "streams.h"
#include "product.h"
#undef GOMHC_VECTOR_BYTES
}  // namespace baseline

// GCC and clang have different pragmas that allow instructions to the functions that follow. One file holds all of them:
// in several, the linker could choose an AVX-512 copy of a function of the standard library for machines without it.
#ifdef __x86_64__
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace avx2 {
#define GOMHC_VECTOR_BYTES 32
#include "lanes.h"
#include "map.h"
#include "streams.h"
#include "product.h"
#undef GOMHC_VECTOR_BYTES
}  // namespace avx2
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx2,fma")
#endif
namespace avx512 {
#define GOMHC_VECTOR_BYTES 64
#include "lanes.h"
#include "map.h"
#include "streams.h"
#include "product.h"
#undef GOMHC_VECTOR_BYTES
}  // namespace avx512
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif  // __x86_64__

struct InstructionSet {
    const char *name;
    int block;  // matrices in a block of the map
    void (*map)(const Map &, int64_t first, int64_t last);
    void (*read)(const Read &, int64_t first, int64_t last);
    void (*write)(const Write &, int64_t first, int64_t last);
    void (*product)(const Product &, int64_t first, int64_t last);
};

InstructionSet best() {
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return {"avx512", avx512::BLOCK, avx512::map, avx512::read, avx512::write, avx512::product};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return {"avx2", avx2::BLOCK, avx2::map, avx2::read, avx2::write, avx2::product};
#endif
#ifdef __aarch64__
    const char *const name = "neon";
#else
    const char *const name = "baseline";
#endif
    return {name, baseline::BLOCK, baseline::map, baseline::read, baseline::write, baseline::product};
}

const InstructionSet chosen = best();

// Pieces of `size` of `count` things, on several threads. Which piece a thing is in does not depend on their number.
template <typename Task>
void in_pieces(void (*work)(const Task &, int64_t, int64_t), const Task &task, int64_t count, int64_t size, int threads) {
    parallel(threads, (count + size - 1) / size,
             [&](int64_t piece) { work(task, piece * size, std::min(count, (piece + 1) * size)); });
}

}  // namespace

#ifndef GOMHC_STAMP
#define GOMHC_STAMP none
#endif
#define GOMHC_QUOTE(text) #text
#define GOMHC_EXPANDED(text) GOMHC_QUOTE(text)

#pragma GCC visibility push(default)  // CMakeLists.txt hides everything else
extern "C" {

// The sources that this was built from. stamp.py looks for it in the file before the library is loaded.
extern const char gomhc_stamp[];
const char gomhc_stamp[] = "gomhc native sources " GOMHC_EXPANDED(GOMHC_STAMP);

const char *gomhc_instruction_set() { return chosen.name; }

void gomhc_use_openmp(OpenMP function) { openmp = function, openmp_owner = process_id(); }

void gomhc_map(const Map *task, int threads) {
    const int64_t blocks = (task->count + chosen.block - 1) / chosen.block;
    const int64_t size = std::max<int64_t>(1, 16384 / (work(task->parts) * chosen.block));  // some microseconds
    in_pieces(chosen.map, *task, blocks, size, threads);
}

void gomhc_read(const Read *task, int threads) { in_pieces(chosen.read, *task, task->tokens, 64, threads); }

void gomhc_write(const Write *task, int threads) { in_pieces(chosen.write, *task, task->tokens, 64, threads); }

void gomhc_product(const Product *task, int threads) { in_pieces(chosen.product, *task, task->tokens, 64, threads); }

}  // extern "C"
#pragma GCC visibility pop
