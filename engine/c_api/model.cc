// Models across the C interface: opened as the command line opens them, with its defaults.
#include <memory>
#include <string>

#include "engine/c_api/objects.h"
#include "engine/model_text.h"
#include "engine/text/chat.h"

namespace waste::c_api {
namespace {

void add_warning(OpenModel& open, const std::string& line) {
    if (!line.empty()) open.warnings += line + "\n";
}

Result<void> read_text_files(OpenModel& open) {
    auto tokenizer = engine::open_tokenizer(open.model.container(), open.model.config().vocab_size);
    if (!tokenizer) return pass(tokenizer);
    open.tokenizer = std::move(*tokenizer);
    const engine::Tokenizer* text = open.tokenizer ? &*open.tokenizer : nullptr;
    auto stop_ids = engine::find_stop_ids(open.model, text);
    if (!stop_ids) return pass(stop_ids);
    open.stop_ids = std::move(*stop_ids);
    if (text == nullptr) return {};
    for (const std::string& warning : text->warnings()) add_warning(open, warning);
    if (const auto format = engine::detect_chat_format(*text)) {
        open.chat_format = *format == engine::ChatFormat::xtml ? "xtml" : "im";
    }
    return {};
}

Result<void> hold(OpenModel& open) {
    auto& options = open.options;
    if (const auto good = choose_context(open.model.config(), options.session); !good) return good;
    open.memory = read_memory();
    auto fitted = engine::fit_model(open.model, options.session, options.fit);
    if (!fitted) return pass(fitted);
    open.fitted = std::move(*fitted);
    add_warning(open, open.fitted.warning);
    if (open.model.trunk().lock_refused()) add_warning(open, "trunk " + open.model.trunk().description());
    if (options.learn) {
        open.learned.emplace(open.model);
        add_warning(open, open.learned->warning());
    }
    open.watch.emplace(open.model.experts());
    return {};
}

Result<void> open_model(const char* path, const waste_model_options* given, waste_model** model) {
    if (path == nullptr) return fail_null("path");
    if (model == nullptr) return fail_null("model");
    auto options = open_options(given);
    if (!options) return pass(options);
    auto opened = engine::Model::open(path);
    if (!opened) return pass(opened);
    const auto open = std::make_shared<OpenModel>(std::move(*opened));
    open->options = std::move(*options);
    if (const auto read = read_text_files(*open); !read) return read;
    if (const auto held = hold(*open); !held) return held;
    *model = new waste_model{open};
    return {};
}

Result<void> get_info(const waste_model* model, waste_model_info* info) {
    if (model == nullptr) return fail_null("model");
    if (const auto good = check_out(info, "waste_model_info"); !good) return good;
    const OpenModel& open = *model->open;
    const engine::ModelConfig& config = open.model.config();
    const container::Manifest& manifest = open.model.container().manifest();
    waste_model_info out{};
    out.family = config.family == engine::Family::kimi_k3 ? "kimi_k3" : "kimi_linear";
    out.fingerprint = manifest.fingerprint.c_str();
    out.chat_format = open.chat_format;
    out.warnings = open.warnings.c_str();
    out.tier = kernels::tier_name(open.options.session.tier).data();  // of a literal, so it ends in NUL
    out.vocab_size = config.vocab_size;
    out.max_context = config.max_context;
    out.context_length = open.options.session.context_length;
    out.layers = config.num_hidden_layers;
    out.experts = config.num_experts;
    out.experts_per_token = config.num_experts_per_token;
    out.trunk_bytes = manifest.trunk_bytes;
    for (const container::BankEntry& bank : manifest.banks) out.expert_bytes += bank.bytes;
    out.stop_ids = open.stop_ids.data();
    out.stop_count = open.stop_ids.size();
    out.threads = open.options.session.threads;
    out.has_tokenizer = open.tokenizer ? 1 : 0;
    write_struct(out, info);
    return {};
}

Result<void> get_stats(const waste_model* model, waste_stats* stats) {
    if (model == nullptr) return fail_null("model");
    if (const auto good = check_out(stats, "waste_stats"); !good) return good;
    const engine::Model& held = model->open->model;
    const engine::StreamCounters counters = held.counters();
    waste_stats out{};
    out.expert_uses = counters.experts.uses;
    out.expert_hits = counters.experts.hits;
    out.expert_joined = counters.experts.joined;
    out.expert_misses = counters.experts.misses;
    out.expert_bytes = counters.experts.bytes;
    out.ahead_reads = counters.experts.ahead_reads;
    out.ahead_used = counters.experts.ahead_used;
    out.expert_wait_ns = counters.experts.wait_nanoseconds;
    out.trunk_wait_ns = counters.trunk_wait_nanoseconds;
    out.drive_reads = counters.drive.reads;
    out.drive_bytes = counters.drive.bytes;
    out.drive_busy_ns = counters.drive.busy_nanoseconds;
    out.drive_retries = counters.drive.retries;
    if (held.experts().streams()) {
        out.cache_slots = held.experts().slots();
        out.usable_cache_slots = held.experts().usable_slots();
    }
    write_struct(out, stats);
    return {};
}

}  // namespace

OpenModel::~OpenModel() {
    watch.reset();
    if (!learned) return;
    // What was learned is worth no more than a try: nobody is left to tell.
    (void)guarded([&] { return learned->save(); });
}

}  // namespace waste::c_api

extern "C" {

waste_status waste_model_open(const char* path, const waste_model_options* options, waste_model** model) {
    return waste::c_api::guarded([&] { return waste::c_api::open_model(path, options, model); });
}

void waste_model_close(waste_model* model) {
    delete model;
}

waste_status waste_model_get_info(const waste_model* model, waste_model_info* info) {
    return waste::c_api::guarded([&] { return waste::c_api::get_info(model, info); });
}

waste_status waste_model_get_stats(const waste_model* model, waste_stats* stats) {
    return waste::c_api::guarded([&] { return waste::c_api::get_stats(model, stats); });
}

}  // extern "C"
