# SPDX-License-Identifier: Apache-2.0
# npumem_flags: what every user-space target of the project compiles with.
add_library(npumem_flags INTERFACE)
target_compile_definitions(npumem_flags INTERFACE _GNU_SOURCE NPUMEM_VERSION="${PROJECT_VERSION}")
target_compile_options(npumem_flags INTERFACE
    -Wall -Wextra -Wshadow -Wpointer-arith -Wwrite-strings -Wvla -Wformat=2 -Wundef
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition>
    -Wno-unused-parameter -fno-common -fstack-protector-strong
    $<$<BOOL:${NPUMEM_WERROR}>:-Werror>)
if(NPUMEM_SANITIZE)
    target_compile_options(npumem_flags INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer)
    target_link_options(npumem_flags INTERFACE -fsanitize=address,undefined)
else()
    target_compile_definitions(npumem_flags INTERFACE $<$<CONFIG:Release,RelWithDebInfo>:_FORTIFY_SOURCE=2>)
endif()
if(NPUMEM_COVERAGE)
    target_compile_options(npumem_flags INTERFACE --coverage)
    target_link_options(npumem_flags INTERFACE --coverage)
endif()
