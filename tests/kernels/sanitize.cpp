// Every compiled operation, for sanitizers: over odd sizes, all precisions and two threads; or, with a number of seconds and
// a seed as arguments, over random ones, from several callers at once and from forked children.
#include "kernels.cpp"

#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

struct Work {
    std::mt19937 generator;
    int threads;

    std::vector<float> numbers(int64_t size, float scale = 1) {
        std::normal_distribution<float> normal(0, scale);
        std::vector<float> values(size);
        for (float &value : values) value = normal(generator);
        return values;
    }

    int below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(generator); }

    void map(int64_t count, const std::vector<Part> &parts, float scale) {
        const int d = parts[0].d, p = parts[0].p;
        auto logits = numbers(count * p, scale), grad = numbers(count * d * d);
        std::vector<float> matrix(grad.size()), out(logits.size());
        const Map forward{logits.data(), matrix.data(), nullptr, parts.data(), count, 0};
        const Map backward{logits.data(), grad.data(), out.data(), parts.data(), count, 1};
        gomhc_map(&forward, threads);
        gomhc_map(&backward, threads);
    }

    static std::vector<Part> single(int kind, int d, int number) {
        if (kind == QUATERNIONS && d != 4) kind = ORTHOGONAL;  // they turn four streams
        const int n = d * number;
        int p = d * d;
        if (kind == GO || kind == GO_HOUSEHOLDER || kind == GO_GIVENS) p = n * (n - 1) / 2;
        if (kind == GO_SQUARE || kind == GO_UNITARY) p = n * n;
        if (kind == TRANSPORTATION || kind == SPECTRAL_SPHERE) p = (d - 1) * (d - 1);
        if (kind == IDENTITY) p = 0;
        if (kind == CIRCULANT) p = d;
        if (kind == OFF_DIAGONAL) p = d * (d - 1);
        if (kind == ORTHOGONAL) p = d * (d - 1) / 2;
        if (kind == QUATERNIONS) p = 8;
        if (kind == PERMUTATIONS) for (int i = p = 1; i <= d; i++) p *= i;
        return {{kind, d, number, p, 1e-6f}};
    }

    static std::vector<Part> composite(int kind, std::vector<std::vector<Part>> parts) {
        std::vector<Part> all{{kind, 1, int(parts.size()), kind == AVERAGE ? int(parts.size()) : 0, 0}};
        for (const auto &part : parts) {
            all[0].d = kind == AVERAGE ? part[0].d : all[0].d * part[0].d, all[0].p += part[0].p;
            all.insert(all.end(), part.begin(), part.end());
        }
        return all;
    }

    std::vector<Part> any_map() {
        const int kind = below(AVERAGE + 1), d = 1 + below(below(5) ? 9 : 32), s = 1 + below(std::min(4, 64 / d));
        if (kind == KRONECKER) return composite(kind, {any_single(1 + below(8)), any_single(1 + below(4)), any_single(2)});
        if (kind == AVERAGE) return composite(kind, {any_single(d), composite(KRONECKER, {any_single(d)})});
        return single(kind, kind == PERMUTATIONS ? 1 + below(7) : d, kind < SINKHORN ? s : 1 + below(30));
    }

    std::vector<Part> any_single(int d) { return single(below(KRONECKER), std::min(d, 6), 1 + below(3)); }

    // Random bits in half precision: all numbers, and not numbers too.
    std::vector<float> streams(int64_t size, int element) {
        if (element == FLOAT32) return numbers(size);
        std::vector<float> memory(size / 2 + 1);
        std::uniform_int_distribution<int> bits(0, 65535);
        for (int64_t i = 0; i < size; i++) {
            const auto half = uint16_t(bits(generator));
            std::memcpy(reinterpret_cast<char *>(memory.data()) + 2 * i, &half, 2);
        }
        return memory;
    }

    void read(int64_t tokens, int d, int64_t c, int p, int element) {
        const int k = 2 * d + p;
        auto x = streams(tokens * d * c, element), weight = numbers(k * d * c), scale = numbers(k), bias = numbers(k);
        auto input = streams(tokens * c, element), write = numbers(tokens * d), mix = numbers(tokens * p);
        auto projection = numbers(tokens * k), rms = numbers(tokens);
        auto grad_x = x, grad_projection = projection, grad_logits = projection, grad_weight = weight;
        Read task{x.data(), weight.data(), scale.data(), bias.data(), input.data(), write.data(), mix.data(), projection.data(),
                  rms.data(), nullptr, nullptr, nullptr, nullptr, nullptr, tokens, c, d, k, element, 0, 0.f, 1e-6f};
        gomhc_read(&task, threads);
        task.grad_x = grad_x.data(), task.grad_projection = grad_projection.data();
        task.grad_logits = grad_logits.data(), task.back = 1;
        gomhc_read(&task, threads);
        task.grad_weight = grad_weight.data();
        gomhc_read(&task, threads);
    }

    // With the write of a connection before (`matrices` are one, or one for each token) or without one (zero).
    void connect(int64_t tokens, int64_t matrices, bool is_static, int d, int64_t c, int element) {
        const Part part{SINKHORN, d, 3, d * d, 0.f};
        const int k = 2 * d + d * d;
        const int64_t own = is_static ? 1 : tokens;
        auto x = streams(tokens * d * c, element), y = streams(tokens * c, element), input = y, grad_y = y;
        auto out = x, grad_out = x, grad_x = x;
        auto before_mix = numbers(matrices * d * d), before_write = numbers(matrices * d), mix = numbers(own * d * d);
        auto grad_mix = before_mix, grad_write = before_write, write = numbers(own * d);
        auto weight = numbers(k * d * c), scale = numbers(3), bias = numbers(k), projection = numbers(tokens * k);
        auto rms = numbers(tokens), grad_weight = weight, grad_scale = scale, grad_bias = bias, grad_projection = projection;
        Connect task{};
        task.x = x.data(), task.bias = bias.data(), task.input = input.data(), task.write = write.data();
        task.mix = mix.data(), task.parts = &part, task.tokens = tokens, task.own = own, task.matrices = 1, task.c = c;
        task.d = d, task.k = k, task.element = element, task.epsilon = 1e-6f;
        if (!is_static) task.weight = weight.data(), task.scale = scale.data();
        if (matrices > 0) {
            task.before_mix = before_mix.data(), task.before_write = before_write.data(), task.y = y.data();
            task.out = out.data(), task.matrices = matrices;
        }
        gomhc_connect(&task, threads);  // nothing is kept
        if (!is_static) task.projection = projection.data(), task.inverse_rms = rms.data();
        gomhc_connect(&task, threads);
        task.back = 1, task.grad_x = grad_x.data(), task.grad_bias = grad_bias.data();
        if (matrices > 0)
            task.grad_before_mix = grad_mix.data(), task.grad_before_write = grad_write.data(), task.grad_y = grad_y.data();
        if (!is_static)
            task.grad_projection = grad_projection.data(), task.grad_weight = grad_weight.data(),
            task.grad_scale = grad_scale.data();
        gomhc_connect(&task, threads);
        task.grad_out = grad_out.data();
        gomhc_connect(&task, threads);
    }

    void sum(int64_t tokens, int d, int64_t c, int element) {
        auto x = streams(tokens * d * c, element), input = streams(tokens * c, element), weights = numbers(d);
        auto grad_x = x, grad_weights = weights;
        Sum task{x.data(), weights.data(), input.data(), nullptr, nullptr, nullptr, tokens, c, d, element, 0};
        gomhc_sum(&task, threads);
        task.grad_x = grad_x.data(), task.grad_weights = grad_weights.data(), task.back = 1;
        gomhc_sum(&task, threads);
    }

    void write(int64_t tokens, int64_t matrices, int d, int64_t c, int element) {
        auto x = streams(tokens * d * c, element), mix = numbers(matrices * d * d), weights = numbers(matrices * d);
        auto y = streams(tokens * c, element);
        auto out = x, grad_x = x, grad_mix = mix, grad_weights = weights, grad_y = y;
        Write task{x.data(), mix.data(), weights.data(), y.data(), out.data(), nullptr, nullptr,
                   nullptr, nullptr, tokens, matrices, c, d, element, 0};
        gomhc_write(&task, threads);
        task.grad_x = grad_x.data(), task.grad_mix = grad_mix.data();
        task.grad_weights = grad_weights.data(), task.grad_y = grad_y.data(), task.back = 1;
        gomhc_write(&task, threads);
    }

    void anything() {
        const int64_t count = below(300), c = 1 + below(70);
        const int d = 1 + below(below(5) ? 9 : 32), element = below(3);
        map(count, any_map(), std::pow(10.f, float(below(15) - 4)));
        read(count, d, c, below(40), element);
        read(count / 8, 1, 1 + below(2500), below(60), element);
        connect(count, below(2) ? count : below(2), below(2) == 0, d, c, element);
        sum(count, d, c, element);
        write(count, below(2) ? 1 : count, d, c, element);
    }
};

void odd_sizes() {
    Work work{std::mt19937(0), 2};
    for (int d : {1, 2, 3, 4, 5, 8, 16, 32})
        for (int64_t count : {1, 7, 16, 301}) {
            for (float scale : {1.f, 9.f, 1e3f, 1e30f}) {
                for (int kind = GO; kind < KRONECKER; kind++)
                    for (int number : {1, 2})
                        if (kind != PERMUTATIONS || d < 8) work.map(count, Work::single(kind, d, number), scale);
                const auto go = Work::single(GO, std::min(d, 8), 2), sinkhorn = Work::single(SINKHORN, 2, 20);
                const auto average = Work::composite(AVERAGE, {go, go, go});
                work.map(count, average, scale);
                work.map(count, Work::composite(KRONECKER, {average, sinkhorn, Work::composite(KRONECKER, {})}), scale);
            }
            for (int64_t c : {1, 5, 8, 37})
                for (int element : {FLOAT32, BFLOAT16, FLOAT16}) {
                    for (int p : {0, 3, 28}) work.read(count, d, c, p, element);
                    for (int64_t matrices : {int64_t(0), int64_t(1), count})
                        for (bool is_static : {false, true}) work.connect(count, matrices, is_static, d, c, element);
                    work.sum(count, d, c, element);
                    for (int64_t matrices : {int64_t(1), count}) work.write(count, matrices, d, c, element);
                }
        }
    std::puts("clean");
}

int random_work(int seconds, int seed) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    std::atomic<int64_t> calls{0};
    int forks = 0;
    for (int round = 0; std::chrono::steady_clock::now() < end; round++) {
        std::vector<std::thread> callers;
        for (int caller = 0; caller < 3; caller++)
            callers.emplace_back([&, caller] {
                Work work{std::mt19937(seed + 1000 * round + caller), 1 + (round + caller) % 8};
                for (int i = 0; i < 20; i++) work.anything(), calls += 17;
            });
        for (auto &caller : callers) caller.join();
        const pid_t child = fork();
        if (child == 0) {
            Work work{std::mt19937(seed + round), 3};
            for (int i = 0; i < 5; i++) work.anything();
            _exit(0);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0) return std::puts("a forked child failed"), 1;
        forks++;
    }
    std::printf("clean: %lld calls, %d forks\n", static_cast<long long>(calls), forks);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 3) return random_work(std::atoi(arguments[1]), std::atoi(arguments[2]));
    odd_sizes();
    return 0;
}
