// Memory that is wanted after the products that are being computed: it is brought into the second cache meanwhile, since
// products leave the way to memory idle.
#pragma once

#include <algorithm>
#include <cstdint>

struct Ahead {
    const void *tensors[3] = {};  // or null
    int64_t bytes = 0;            // of each
    int64_t done = 0;

    // Brings the share of it that `work` is of `all` work.
    void bring(int64_t work, int64_t all) {
        constexpr int64_t LINE = 64;
        const int64_t end = std::min(bytes, done + (bytes * work / all + LINE - 1) / LINE * LINE);
        for (; done < end; done += LINE)
            for (const void *tensor : tensors)
                if (tensor != nullptr) __builtin_prefetch(static_cast<const char *>(tensor) + done, 0, 2);
    }
};
