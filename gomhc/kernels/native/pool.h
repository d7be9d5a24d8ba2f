// `parallel(threads, pieces, f)` calls f(piece) for each piece, on at most so many threads, the caller among them.
//
// Where torch runs on OpenMP, on its threads: they wait for work by spinning, and would hold the cores against others.
// Elsewhere on a pool whose threads sleep until there is work, one a process; a forked child makes its own.
#pragma once

#ifdef _WIN32
#include <process.h>
#else
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

inline int process_id() {
#ifdef _WIN32
    return _getpid();
#else
    return getpid();
#endif
}

class Pool {
  public:
    void run(int helpers, int64_t pieces, const std::function<void(int64_t)> &work) {
        std::lock_guard<std::mutex> one_at_a_time(turn_);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            for (; workers_ < helpers; workers_++) std::thread([this, id = workers_] { serve(id); }).detach();
            work_ = &work, pieces_ = pieces, next_ = 0, wanted_ = helpers, running_ = helpers, round_++;
        }
        wake_.notify_all();
        take_pieces();
        while (running_.load(std::memory_order_acquire) != 0) std::this_thread::yield();  // a piece at most: soon
    }

  private:
    void take_pieces() {
        for (int64_t piece = next_++; piece < pieces_; piece = next_++) (*work_)(piece);
    }

    void serve(int id) {
        uint64_t seen = 0;
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            // Until an hour of this clock, because GCC 12 gives other waits symbols that systems from before 2022 lack.
            const auto later = std::chrono::system_clock::now() + std::chrono::hours(1);
            if (!wake_.wait_until(lock, later, [&] { return round_ != seen; })) continue;
            seen = round_;
            if (id >= wanted_) continue;
            lock.unlock();
            take_pieces();
            running_.fetch_sub(1, std::memory_order_release);
            lock.lock();
        }
    }

    std::mutex turn_, mutex_;
    std::condition_variable wake_;
    const std::function<void(int64_t)> *work_ = nullptr;
    std::atomic<int64_t> next_{0};
    std::atomic<int> running_{0};
    int64_t pieces_ = 0;
    int workers_ = 0, wanted_ = 0;
    uint64_t round_ = 0;
};

typedef void (*OpenMP)(void (*body)(void *), void *data, unsigned threads, unsigned flags);  // GOMP_parallel
inline OpenMP openmp = nullptr;
inline int openmp_owner = 0;  // GNU's hangs in a forked child

inline void parallel(int threads, int64_t pieces, const std::function<void(int64_t)> &work) {
    threads = int(std::min<int64_t>(threads, pieces));
    if (threads <= 1) {
        for (int64_t piece = 0; piece < pieces; piece++) work(piece);
        return;
    }
    if (openmp != nullptr && openmp_owner == process_id()) {
        struct Shared {
            const std::function<void(int64_t)> &work;
            const int64_t pieces;
            std::atomic<int64_t> next{0};
        } shared{work, pieces};
        openmp(
            [](void *data) {
                auto *shared = static_cast<Shared *>(data);
                for (int64_t piece = shared->next++; piece < shared->pieces; piece = shared->next++) shared->work(piece);
            },
            &shared, unsigned(threads), 0);
        return;
    }
    // Never freed: detached threads may outlive any destructor. After a fork they are gone, and so is the pool.
    static std::mutex mutex;
    static Pool *pool = nullptr;
    static int owner = 0;
    Pool *current;
    {
        std::lock_guard<std::mutex> lock(mutex);
        if (pool == nullptr || owner != process_id()) pool = new Pool, owner = process_id();
        current = pool;
    }
    current->run(threads - 1, pieces, work);
}
