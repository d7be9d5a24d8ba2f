// Every compiled operation over odd sizes, both precisions and two threads, for address and undefined-behaviour sanitizers.
#include "kernels.cpp"

#include <cstdio>
#include <random>

std::mt19937 generator(0);

std::vector<float> numbers(int64_t size, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(size);
    for (float &value : values) value = normal(generator);
    return values;
}

void map(int64_t count, int d, int s, float scale) {
    const int n = d * s, p = n * (n - 1) / 2;
    auto logits = numbers(count * p, scale), grad = numbers(count * d * d);
    std::vector<float> matrix(grad.size()), out(logits.size());
    const Map forward{logits.data(), matrix.data(), nullptr, count, d, s};
    const Map backward{logits.data(), grad.data(), out.data(), count, d, s};
    gomhc_map(&forward, 2);
    gomhc_map(&backward, 2);
}

void read(int64_t tokens, int d, int64_t c, int p) {
    const int k = 2 * d + p;
    auto x = numbers(tokens * d * c), projection = numbers(tokens * k), scale = numbers(k), bias = numbers(k);
    auto input = numbers(tokens * c), write = numbers(tokens * d), mix = numbers(tokens * p), rms = numbers(tokens);
    auto grad_x = x, grad_projection = projection, grad_logits = projection;
    Read task{x.data(), projection.data(), scale.data(), bias.data(), input.data(), write.data(), mix.data(), rms.data(),
              nullptr, nullptr, nullptr, tokens, c, d, k, 0.f, 1e-6f};
    gomhc_read(&task, 2);
    task.grad_x = grad_x.data(), task.grad_projection = grad_projection.data(), task.grad_logits = grad_logits.data();
    gomhc_read(&task, 2);
}

void write(int64_t tokens, int d, int64_t c) {
    auto x = numbers(tokens * d * c), mix = numbers(tokens * d * d), weights = numbers(tokens * d), y = numbers(tokens * c);
    auto out = x, grad_x = x, grad_mix = mix, grad_weights = weights, grad_y = y;
    Write task{x.data(), mix.data(), weights.data(), y.data(), out.data(), nullptr, nullptr, nullptr, nullptr, tokens, c, d};
    gomhc_write(&task, 2);
    task.grad_x = grad_x.data(), task.grad_mix = grad_mix.data();
    task.grad_weights = grad_weights.data(), task.grad_y = grad_y.data();
    gomhc_write(&task, 2);
}

int main() {
    for (int d : {1, 2, 3, 4, 5, 8, 16, 32})
        for (int64_t count : {1, 7, 16, 301}) {
            for (int s : {1, 2})
                for (float scale : {1.f, 9.f}) map(count, d, s, scale);
            for (int64_t c : {1, 5, 8, 37}) {
                for (int p : {0, 3, 28}) read(count, d, c, p);
                write(count, d, c);
            }
        }
    std::puts("clean");
}
