# SPDX-License-Identifier: Apache-2.0
# bpf_skeleton(NAME SOURCE [DEFINES ...]): clang -> object (with depfile) -> <name>.skel.h -> target <name>_skel.
# No vmlinux.h: uprobe programs need struct pt_regs only, so a host without BTF and a cross build can compile.
find_program(NPUMEM_CLANG NAMES clang clang-14 clang-15 clang-16 clang-17 REQUIRED)
find_program(NPUMEM_BPFTOOL NAMES bpftool PATHS /usr/sbin /sbin REQUIRED)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(NPUMEM_BPF_ARCH arm64)
else()
    set(NPUMEM_BPF_ARCH x86)
endif()

function(bpf_skeleton name source)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "DEFINES")
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.bpf.o)
    set(skeleton ${CMAKE_CURRENT_BINARY_DIR}/${name}.skel.h)
    set(defines ${arg_DEFINES})
    list(TRANSFORM defines PREPEND -D)
    set(include_arch)
    if(CMAKE_C_LIBRARY_ARCHITECTURE)
        set(include_arch -idirafter ${CMAKE_SYSROOT}/usr/include/${CMAKE_C_LIBRARY_ARCHITECTURE})
    endif()
    add_custom_command(
        OUTPUT ${object}
        COMMAND ${NPUMEM_CLANG} -std=gnu11 -O2 -g -target bpf -mcpu=v3 -D__bpf__ -D__TARGET_ARCH_${NPUMEM_BPF_ARCH}
            ${defines} -Wall -Wextra -Wno-unused-parameter -Werror -I${CMAKE_SOURCE_DIR}/schema ${include_arch}
            -MD -MT ${object} -MF ${object}.d -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
        DEPENDS ${source}
        DEPFILE ${object}.d
        COMMENT "BPF ${name}"
        VERBATIM)
    add_custom_command(
        OUTPUT ${skeleton}
        COMMAND ${NPUMEM_BPFTOOL} gen skeleton ${object} name ${name} > ${skeleton}
        DEPENDS ${object}
        VERBATIM)
    add_custom_target(${name}_skel_gen DEPENDS ${skeleton})
    add_library(${name}_skel INTERFACE)
    add_dependencies(${name}_skel ${name}_skel_gen)
    target_include_directories(${name}_skel SYSTEM INTERFACE ${CMAKE_CURRENT_BINARY_DIR})
    target_link_libraries(${name}_skel INTERFACE PkgConfig::LIBBPF)
endfunction()
