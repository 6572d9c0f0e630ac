#include "tools/session_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "container/file.h"
#include "container/machine.h"
#include "tools/budget_option.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

constexpr const char* kGroup = "Session";

void add_format_option(CLI::App& command, const char* name, std::string& format, const char* about) {
    command.add_option(name, format, about)
        ->check(CLI::IsMember({"f32", "bf16"}))
        ->capture_default_str()
        ->group(kGroup);
}

engine::StateFormat format_of(const std::string& name) {
    return name == "bf16" ? engine::StateFormat::bf16 : engine::StateFormat::f32;
}

}  // namespace

void add_session_options(CLI::App& command, SessionArguments& arguments) {
    auto* file =
        command
            .add_option("--session", arguments.file,
                        "Go on with the session in this file, and save it there at the end and on Ctrl-C")
            ->type_name("FILE")
            ->group(kGroup);
    command.add_option("--save-every", arguments.save_every, "Save after so many tokens, too")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 32))
        ->needs(file)
        ->group(kGroup);
    command.add_flag("--rewind", arguments.rewind, "Go back to where the session leaves the prompt")
        ->needs(file)
        ->group(kGroup);
    add_format_option(command, "--session-state", arguments.state_format,
                      "KDA states in the file: exact, or half the size");
    add_format_option(command, "--session-latents", arguments.latent_format,
                      "MLA latents in the file, likewise");
    add_checkpoints_option(command, arguments.checkpoints)->group(kGroup);
    auto* cache =
        command
            .add_option("--prompt-cache", arguments.prompt_cache,
                        "Keep what was read in this directory, and read no beginning of a prompt twice")
            ->type_name("DIR")
            ->group(kGroup);
    const auto set_size = [&arguments](const std::string& text) {
        if (const auto size = parse_size(text)) arguments.prompt_cache_bytes = *size;
    };
    command
        .add_option_function<std::string>(
            "--prompt-cache-size", set_size,
            "Most it may take, 20 GB by default; what was not used for longest goes")
        ->check(check_size)
        ->type_name("SIZE")
        ->needs(cache)
        ->group(kGroup);
}

engine::SaveOptions save_options(const SessionArguments& arguments) {
    return {format_of(arguments.state_format), format_of(arguments.latent_format), false};
}

int checkpoint_count(const SessionArguments& arguments, const MemoryArguments& memory,
                     const engine::ModelConfig& config, bool wanted) {
    if (arguments.checkpoints) return *arguments.checkpoints;
    if (!wanted) return 0;
    constexpr uint64_t kShare = 32, kMost = 16, kUnknown = 4;
    const auto machine = container::read_machine_memory("");
    if (!machine && !memory.budget_bytes) return kUnknown;
    const uint64_t room =
        std::min(machine ? machine->usable_bytes : UINT64_MAX, memory.budget_bytes.value_or(UINT64_MAX));
    const auto bytes = static_cast<uint64_t>(engine::Checkpoints::bytes(config));
    return static_cast<int>(std::clamp<uint64_t>(room / kShare / bytes, 1, kMost));
}

Result<std::optional<engine::SavedSession>> open_saved(const std::string& path) {
    if (path.empty()) return std::optional<engine::SavedSession>();
    // What will not be possible after minutes of work is said before it.
    if (const auto ok = container::check_writable(path); !ok) return pass(ok);
    if (!container::is_file(path)) return std::optional<engine::SavedSession>();
    auto saved = engine::SavedSession::open(path);
    if (!saved) return pass(saved);
    return std::optional(std::move(*saved));
}

void SessionSaver::after_tokens() {
    if (arguments_.save_every == 0 || failed_) return;
    // One that fails is not tried again before the end: a line a token would bury the text.
    if (session_.position() - last_saved_ >= arguments_.save_every) failed_ = !save(true);
}

bool SessionSaver::at_end(bool quiet) {
    if (arguments_.file.empty() || session_.position() == 0) return true;
    const int64_t computed = session_.position();
    const int64_t sound = session_.recover();
    if (sound < computed) {
        warn(fmt::format("the session goes back to token {}, where it was last whole", sound));
        if (sound <= last_saved_) return true;  // what the file has is as good
    }
    return save(quiet);
}

bool SessionSaver::save(bool quiet) {
    const auto saved = session_.save(arguments_.file, save_options(arguments_));
    last_saved_ = session_.position();
    if (!saved) {
        report(saved.error());
        return false;
    }
    if (!quiet) {
        put_err(fmt::format("session of {} tokens saved to {}: {}, of which {} were written\n",
                            session_.position(), printable(arguments_.file), bytes_text(saved->file_bytes),
                            bytes_text(saved->written_bytes)));
    }
    return true;
}

}  // namespace waste::tools
