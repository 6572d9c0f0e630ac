// What the writers of one conversion share: trunk_writer.h, bank_writer.h.
#pragma once

#include "engine/convert/destination.h"
#include "engine/convert/journal.h"
#include "engine/convert/progress.h"

namespace waste::engine {

struct WriteContext {
    const Source& source;
    const Destination& destination;
    ThreadPool& pool;
    Journal& journal;
    ProgressMeter& progress;
};

}  // namespace waste::engine
