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

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "ahead.h"
#include "pages.h"
#include "pool.h"
#include "tasks.h"

namespace {

// (d, d + 1) -> (d, d) and (d)
void take_apart(const float *gradient, int d, float *grad_mix, float *grad_weights) {
    for (int row = 0; row < d; row++, gradient += d + 1) {
        std::copy_n(gradient, d, grad_mix + row * d);
        grad_weights[row] = gradient[d];
    }
}

namespace baseline {  // SSE2 on x86-64, NEON on arm64
#define GOMHC_VECTOR_BYTES 16
#include "lanes.h"
#include "map.h"
#include "elements.h"
#include "product.h"
#include "streams.h"
#undef GOMHC_VECTOR_BYTES
}  // namespace baseline

// GCC and clang have different pragmas that allow instructions to the functions that follow. One file holds all of them:
// in several, the linker could choose an AVX-512 copy of a function of the standard library for machines without it.
#if defined(__x86_64__) && !defined(GOMHC_BASELINE)  // which asks for that one alone
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
namespace avx2 {
#define GOMHC_VECTOR_BYTES 32
#include "lanes.h"
#include "map.h"
#include "elements.h"
#include "product.h"
#include "streams.h"
#undef GOMHC_VECTOR_BYTES
}  // namespace avx2
#ifdef __clang__
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx2,fma,f16c")
#endif
namespace avx512 {
#define GOMHC_VECTOR_BYTES 64
#include "lanes.h"
#include "map.h"
#include "elements.h"
#include "product.h"
#include "streams.h"
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
    void (*read)(const Read &, int64_t first, int64_t last, const Ahead &ahead);
    void (*weight_gradient)(const Read &, int64_t first, int64_t last);
    void (*sum)(const Sum &, int64_t first, int64_t last, float *sums);
    void (*write)(const Write &, int64_t first, int64_t last, float *sums);
};

#ifdef __x86_64__
bool has_f16c() {  // clang 14 does not know its name
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

InstructionSet best() {
#if defined(__x86_64__) && !defined(GOMHC_BASELINE)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return {"avx512", avx512::BLOCK, avx512::map, avx512::read, avx512::weight_gradient, avx512::sum, avx512::write};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return {"avx2", avx2::BLOCK, avx2::map, avx2::read, avx2::weight_gradient, avx2::sum, avx2::write};
#endif
#ifdef __aarch64__
    const char *const name = "neon";
#else
    const char *const name = "baseline";
#endif
    return {name, baseline::BLOCK, baseline::map, baseline::read, baseline::weight_gradient, baseline::sum, baseline::write};
}

const InstructionSet chosen = best();

// Pieces of `size` of `count` things, on several threads. Which piece a thing is in does not depend on their number.
template <typename Work> void in_pieces(int64_t count, int64_t size, int threads, const Work &work) {
    parallel(threads, (count + size - 1) / size,
             [&](int64_t piece) { work(piece * size, std::min(count, (piece + 1) * size)); });
}

// Bytes of one stream of all tokens.
template <typename Task> int64_t stream_bytes(const Task &task) {
    return task.tokens * task.c * (task.element == FLOAT32 ? sizeof(float) : sizeof(uint16_t));
}

// Works on all tokens, and returns `width` sums over them: over each piece by itself, and then over the pieces in turn.
template <typename Task>
std::vector<float> over_tokens(void (*work)(const Task &, int64_t, int64_t, float *), const Task &task, int width, int threads) {
    const int64_t pieces = (task.tokens + PIECE - 1) / PIECE;
    std::vector<float> sums(width * pieces), total(width);
    in_pieces(task.tokens, PIECE, threads,
              [&](int64_t first, int64_t last) { work(task, first, last, sums.data() + first / PIECE * width); });
    for (int i = 0; i < width; i++) {
        double sum = 0;
        for (int64_t piece = 0; piece < pieces; piece++) sum += sums[piece * width + i];
        total[i] = float(sum);
    }
    return total;
}

#include "connection.h"

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
    in_pieces(blocks, size, threads, [&](int64_t first, int64_t last) { chosen.map(*task, first, last); });
}

void gomhc_read(const Read *task, int threads) {
    on_large_pages(task->back ? task->grad_x : task->input, (task->back ? task->d : 1) * stream_bytes(*task));
    in_pieces(task->tokens, PIECE, threads, [&](int64_t first, int64_t last) { chosen.read(*task, first, last, {}); });
    if (task->grad_weight == nullptr) return;
    in_pieces(task->d * task->c, COLUMNS, threads,
              [&](int64_t first, int64_t last) { chosen.weight_gradient(*task, first, last); });
}

void gomhc_connect(const Connect *task, int threads) { connection::connect(*task, threads); }

void gomhc_sum(const Sum *task, int threads) {
    on_large_pages(task->back ? task->grad_x : task->input, (task->back ? task->d : 1) * stream_bytes(*task));
    const auto sums = over_tokens(chosen.sum, *task, task->back ? task->d : 0, threads);
    std::copy(sums.begin(), sums.end(), task->grad_weights);
}

void gomhc_write(const Write *task, int threads) {
    const int d = task->d;
    on_large_pages(task->back ? task->grad_x : task->out, d * stream_bytes(*task));
    on_large_pages(task->back ? task->grad_y : nullptr, stream_bytes(*task));
    const auto sums = over_tokens(chosen.write, *task, task->back && task->matrices == 1 ? d * d + d : 0, threads);
    if (sums.empty()) return;
    take_apart(sums.data(), d, task->grad_mix, task->grad_weights);
}

}  // extern "C"
#pragma GCC visibility pop
