// What every C function needs: nothing but a status leaves it, and structs of any age go in and out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "container/result.h"
#include "engine/waste.h"

namespace waste::c_api {

/// For waste_last_error(); allocates nothing.
waste_status keep_error(const Error& error) noexcept;
waste_status keep_error(waste_status status, const char* text) noexcept;

/// Runs `work`, which returns Result<void>, and turns whatever comes out of it into a status.
template <typename Work>
waste_status guarded(const Work& work) noexcept {
    try {
        const Result<void> done = work();
        return done ? WASTE_OK : keep_error(done.error());
    } catch (const std::bad_alloc&) {
        return keep_error(WASTE_OUT_OF_MEMORY, "memory: the system gives no more of it");
    } catch (const std::length_error&) {
        return keep_error(WASTE_OUT_OF_MEMORY, "memory: more was needed than there can be");
    } catch (const std::system_error& error) {
        return keep_error(WASTE_IO, error.what());
    } catch (const std::exception& error) {
        return keep_error(WASTE_INTERNAL, error.what());
    } catch (...) {
        return keep_error(WASTE_INTERNAL, "an exception of an unknown kind; did a callback throw it?");
    }
}

inline tl::unexpected<Error> fail_null(const char* name) {
    return fail(ErrorKind::invalid, name, "is null");
}

/// Refuses a struct whose size is not set; `type` is its name.
Result<void> check_size(size_t struct_size, const char* type);
/// Copies what of `given`, struct_size bytes, this library knows into `known`, whose tail stays.
Result<void> read_bytes(const void* given, size_t struct_size, void* known, size_t known_bytes,
                        const char* type);

/// A struct given by the caller, unknown parts at their default of zero; null: all of them.
template <typename Struct>
Result<Struct> read_struct(const Struct* given, const char* type) {
    Struct known{};
    if (given == nullptr) return known;
    const auto read = read_bytes(given, given->struct_size, &known, sizeof known, type);
    if (!read) return pass(read);
    return known;
}

/// Whether write_struct() can fill it: to be asked before anything is done.
template <typename Struct>
Result<void> check_out(const Struct* out, const char* type) {
    if (out == nullptr) return fail_null(type);
    return check_size(out->struct_size, type);
}

/// Fills a checked struct of the caller's; its struct_size stays.
template <typename Struct>
void write_struct(Struct filled, Struct* out) {
    const size_t size = out->struct_size;
    filled.struct_size = size;
    std::memcpy(static_cast<void*>(out), &filled, std::min(size, sizeof filled));
    if (size > sizeof filled) {
        std::memset(reinterpret_cast<std::byte*>(out) + sizeof filled, 0, size - sizeof filled);
    }
}

}  // namespace waste::c_api
