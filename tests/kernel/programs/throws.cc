/* SPDX-License-Identifier: Apache-2.0 */
/*
 * throws.cc - throws through every probed C++ function and catches it. Waits for a line on stdin,
 * then makes N rounds; prints what it caught and ends with 0. A process that is hurt by its probes
 * ends with SIGABRT instead.
 */
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "fake_atb.h"

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? std::atoi(argv[1]) : 1, caught = 0;
    atb::OperationBase operation;
    atb::VariantPack pack{3};
    uint64_t bytes = 0;

    std::puts("ready");
    std::fflush(stdout);
    if (std::getchar() == EOF)
        return 1;
    for (int i = 0; i < rounds; i++) {
        atb::Context *context = nullptr;
        uint8_t workspace[16];
        try {
            operation.Setup(pack, bytes, nullptr);
        } catch (const std::exception &) {
            caught++;
        }
        try {
            operation.Execute(pack, nullptr, bytes, nullptr);
        } catch (const std::exception &) {
            caught++;
        }
        try {
            atb::CreateContext(nullptr);
        } catch (const std::exception &) {
            caught++;
        }
        atb::CreateContext(&context);
        operation.Setup(pack, bytes, context);
        operation.Execute(pack, workspace, bytes, context);
        atb::DestroyContext(context);
    }
    std::printf("caught %d\n", caught);
    return 0;
}
