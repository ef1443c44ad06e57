// The linker: PTX texts joined to one module.
//
// What it gives is a fat binary with the joined PTX inside: nothing here makes machine code. Object files and
// libraries hold machine code, which cannot be joined to PTX.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "driver.hpp"
#include "fatbin.hpp"
#include "image.hpp"
#include "jit_options.hpp"
#include "link_texts.hpp"

using namespace fikit::sim;

namespace fikit::sim {

struct LinkState {
    CUlinkState handle{};
    JitOptions options;
    std::vector<std::string> texts;
    bool runtime = false;  // the device's run-time library is linked, too
    std::vector<std::byte> result;
};

}  // namespace fikit::sim

namespace {

// Of cudadevrt, what cooperative groups without inline functions need: a grid's barrier, in the workspace of
// a cooperative launch. The first block brings what the others' arrivals lack to flip the highest bit.
constexpr std::string_view grid_groups = R"(
.visible .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope)
{
    .reg .b32 %low, %high;
    .reg .b64 %place;
    mov.u32 %high, %envreg1;
    mov.u32 %low, %envreg2;
    mov.b64 %place, {%low, %high};
    st.param.b64 [handle], %place;
    ret;
}
.visible .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags)
{
    .reg .b32 %size, %more, %part, %bring, %before, %now, %result;
    .reg .b64 %place;
    .reg .pred %wrong, %other, %first, %waits;
    ld.param.b64 %place, [handle];
    setp.eq.u64 %wrong, %place, 0;
    selp.u32 %result, 1, 0, %wrong;
    @%wrong bra DONE;
    barrier.sync 0;
    mov.u32 %part, %tid.x;
    mov.u32 %more, %tid.y;
    or.b32 %part, %part, %more;
    mov.u32 %more, %tid.z;
    or.b32 %part, %part, %more;
    setp.ne.u32 %other, %part, 0;
    @%other bra MEET;
    mov.u32 %size, %nctaid.x;
    mov.u32 %more, %nctaid.y;
    mul.lo.u32 %size, %size, %more;
    mov.u32 %more, %nctaid.z;
    mul.lo.u32 %size, %size, %more;
    sub.u32 %size, 0x80000001, %size;
    mov.u32 %part, %ctaid.x;
    mov.u32 %more, %ctaid.y;
    or.b32 %part, %part, %more;
    mov.u32 %more, %ctaid.z;
    or.b32 %part, %part, %more;
    setp.eq.u32 %first, %part, 0;
    selp.u32 %bring, %size, 1, %first;
    atom.add.release.gpu.u32 %before, [%place+4], %bring;
WAIT:
    ld.acquire.gpu.u32 %now, [%place+4];
    xor.b32 %now, %now, %before;
    setp.ge.s32 %waits, %now, 0;
    @%waits bra WAIT;
MEET:
    barrier.sync 0;
DONE:
    st.param.b32 [result], %result;
    ret;
}
)";

// And so that programs are linked whose kernels might launch kernels: one that does ends.
constexpr std::string_view launches = R"(
.visible .func (.param .b64 place) __cudaCDP2GetParameterBufferV2(.param .b64 kernel,
    .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared)
{
    trap;
}
.visible .func (.param .b32 result) __cudaCDP2LaunchDeviceV2(.param .b64 place, .param .b64 stream)
{
    trap;
}
)";

template <typename Body>
CUresult with_link(CUlinkState handle, Body body) {
    return with_handle<&Driver::links>(handle, CUDA_ERROR_INVALID_HANDLE, body);
}

CUresult add(LinkState& link, CUjitInputType type, Bytes bytes) {
    if (type == CU_JIT_INPUT_LIBRARY) {
        // An archive of machine code. What a program takes from cudadevrt, the only one there is, the
        // interpreter knows by name (ptx/system.cpp); what else it may want is found missing at the end.
        constexpr std::string_view magic = "!<arch>\n";
        link.runtime = true;
        const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                                    std::min(bytes.size(), magic.size()));
        return head == magic ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
    }
    std::vector<std::byte> expanded;
    if (type == CU_JIT_INPUT_FATBINARY) {
        FatbinChoice choice;
        std::string problem;
        if (!read_fatbin(bytes, device_major, choice, problem)) return CUDA_ERROR_INVALID_IMAGE;
        if (choice.kind != FatbinChoice::Kind::ptx) return CUDA_ERROR_NO_BINARY_FOR_GPU;
        expanded = std::move(choice.image);
        bytes = expanded;
    } else if (type != CU_JIT_INPUT_PTX) {
        return type >= CU_JIT_INPUT_CUBIN && type < CU_JIT_NUM_INPUT_TYPES ? CUDA_ERROR_NOT_SUPPORTED
                                                                           : CUDA_ERROR_INVALID_VALUE;
    }
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    text = text.substr(0, text.find('\0'));
    // What lacks the other texts cannot be judged yet.
    if (text.find(".extern") == std::string_view::npos) {
        LoadedImage loaded;
        std::string log;
        const CUresult result = load_image(bytes, loaded, log);
        if (result != CUDA_SUCCESS) {
            link.options.report(log);
            return result;
        }
    }
    link.texts.emplace_back(text);
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values, CUlinkState* handle) {
    return with_context([&](Driver& driver, Driver::Lock&, Context&, SimulatedDevice&) -> CUresult {
        if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
        auto link = std::make_shared<LinkState>();
        link->options = JitOptions(count, options, values);
        *handle = driver.links.add(std::move(link));
        return CUDA_SUCCESS;
    });
}

CUresult cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void* data, size_t bytes, const char*,
                          unsigned int, CUjit_option*, void**) {
    return with_link(handle, [&](Driver&, LinkState& link) -> CUresult {
        if (data == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
        return add(link, type, {static_cast<const std::byte*>(data), bytes});
    });
}

CUresult cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char* path, unsigned int,
                          CUjit_option*, void**) {
    return with_link(handle, [&](Driver&, LinkState& link) -> CUresult {
        std::vector<std::byte> bytes;
        if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return read_file(path, bytes) ? add(link, type, bytes) : CUDA_ERROR_FILE_NOT_FOUND;
    });
}

CUresult cuLinkCreate(unsigned int count, CUjit_option* options, void** values, CUlinkState* handle) {
    return cuLinkCreate_v2(count, options, values, handle);
}
CUresult cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data, size_t bytes, const char* name,
                       unsigned int count, CUjit_option* options, void** values) {
    return cuLinkAddData_v2(handle, type, data, bytes, name, count, options, values);
}
CUresult cuLinkAddFile(CUlinkState handle, CUjitInputType type, const char* path, unsigned int count,
                       CUjit_option* options, void** values) {
    return cuLinkAddFile_v2(handle, type, path, count, options, values);
}

CUresult cuLinkComplete(CUlinkState handle, void** image, size_t* bytes) {
    return with_link(handle, [&](Driver&, LinkState& link) -> CUresult {
        if (image == nullptr || bytes == nullptr || link.texts.empty()) return CUDA_ERROR_INVALID_VALUE;
        std::vector<std::string> texts = link.texts;
        const auto add_runtime = [&](std::string_view named, std::string_view text) {
            const auto names = [&](const std::string& each) { return each.find(named) != std::string::npos; };
            if (link.runtime && std::ranges::any_of(link.texts, names)) texts.emplace_back(text);
        };
        add_runtime("cudaCG", grid_groups);
        add_runtime("__cudaCDP2", launches);
        std::string whole = joined_texts(texts);
        if (const unsigned most = link.options.max_registers(); most != 0) {
            whole.insert(whole.find(".address_size 64") + std::string_view(".address_size 64").size(),
                         "\n.pragma \"fikit most registers " + std::to_string(most) + "\";\n");
        }
        LoadedImage loaded;
        std::string log;
        const Bytes text{reinterpret_cast<const std::byte*>(whole.data()), whole.size()};
        const CUresult result = load_image(text, loaded, log);
        // Unlike a module, what is linked has to define what it declares.
        for (const std::string& name : loaded.module.undefined)
            log += "error   : Undefined reference to '" + name + "'\n";
        if (result != CUDA_SUCCESS || !loaded.module.undefined.empty()) {
            link.options.report(log);
            // As the H200 says; where a function is missing it may also be UNKNOWN.
            return CUDA_ERROR_INVALID_SOURCE;
        }
        link.result = wrap_ptx(text);
        *image = link.result.data();
        *bytes = link.result.size();
        return CUDA_SUCCESS;
    });
}

CUresult cuLinkDestroy(CUlinkState handle) {
    return with_link(handle, [](Driver& driver, LinkState& link) -> CUresult {
        driver.links.remove(&link);
        return CUDA_SUCCESS;
    });
}

}  // extern "C"
