// What the operations work on. All tensors are float and contiguous; letters as in lanes.h and streams.h.
#pragma once

#include <cstdint>

// Largest logit of a block that is computed in float: entries are then off by 1e-6 or so at the worst.
constexpr float FLOAT_LIMIT = 4.5f;
constexpr int LARGEST = 64;  // rows of a rotation, and streams

struct Map {
    const float *logits;  // (count, p)
    const float *grad;    // (count, d, d), or null in forward
    float *out;           // (count, d, d), or (count, p) in backward
    int64_t count;
    int d, s;
};

// In backward `input`, `write` and `mix` hold the gradients of what they hold after forward.
struct Read {
    const float *x, *projection, *scale, *bias;          // (tokens, d, c), (tokens, k), (k), (k)
    float *input, *write, *mix, *inverse_rms;            // (tokens, c), (tokens, d), (tokens, k - 2d), (tokens)
    float *grad_x, *grad_projection, *grad_logits;       // as x, (tokens, k) twice; null in forward
    int64_t tokens, c;
    int d, k;
    float offset, epsilon;
};

// In backward `out` holds the gradient at what it holds after forward.
struct Write {
    const float *x, *mix, *weights, *y;                  // (tokens, d, c), (tokens, d, d), (tokens, d), (tokens, c)
    float *out;                                          // (tokens, d, c)
    float *grad_x, *grad_mix, *grad_weights, *grad_y;    // null in forward
    int64_t tokens, c;
    int d;
};
