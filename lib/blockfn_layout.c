/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blockfn_layout.c - which struct the block function reads, from its own loads.
 *
 * The bytes before `ptr` are copied into the profiler's record. With component_type there are five
 * of them, and the last, at offset 4, needs a load of its own; without, one 4-byte load takes all
 * four and nothing touches offset 4. Wrong is worse than unknown: what fits neither is unknown.
 *
 * Owns nothing. Must not decode more than single instructions: x86 is looked at byte by byte.
 */
#include <string.h>

#include "blockfn.h"

/* Whether at p begins an operand [base + displacement]: a ModRM byte and what belongs to it. */
static bool operand_x86(const uint8_t *p, uint64_t left, unsigned base, uint8_t displacement)
{
    unsigned n = 1;
    if (left < 3 || (p[0] & 7) != (base & 7))
        return false;
    if ((base & 7) == 4 && p[n++] != 0x24) /* r12 needs a SIB byte */
        return false;
    if ((p[0] & 0xc0) == 0x40) /* one displacement byte */
        return p[n] == displacement;
    return (p[0] & 0xc0) == 0 && displacement == 0 && (base & 7) != 5;
}

/* Whether at p a load of 1 or 4 bytes from [base + displacement] begins. */
static bool loads_x86(const uint8_t *p, uint64_t left, unsigned base, uint8_t displacement,
                      unsigned width)
{
    unsigned n = 0;
    uint8_t rex = left > 0 && (p[0] & 0xf0) == 0x40 ? p[n++] : 0;

    if ((base >= 8) != ((rex & 1) != 0) || (rex & 8) || left < n + 2u)
        return false;
    if (width == 4 && p[n++] != 0x8b) /* mov r32 */
        return false;
    if (width == 1 && p[n] == 0x8a) /* mov r8 */
        n++;
    else if (width == 1 && p[n] == 0x0f && p[n + 1] == 0xb6) /* movzx r32, byte */
        n += 2;
    else if (width == 1)
        return false;
    return operand_x86(p + n, left - n, base, displacement);
}

/* The callee-saved register that takes the first argument: mov r64, rdi. -1: none. */
static int argument_register_x86(const uint8_t *code, uint64_t bytes)
{
    for (uint64_t at = 0; at + 3 <= bytes; at++) {
        const uint8_t *p = code + at;
        if (p[1] != 0x89 || (p[0] & 0xfe) != 0x48 || (p[2] & 0xf8) != 0xf8)
            continue; /* rex.w mov r/m64, rdi with a register as target */
        int target = (p[2] & 7) | (p[0] & 1) << 3;
        if (target == 3 || target == 5 || target >= 12) /* rbx, rbp, r12 to r15 */
            return target;
    }
    return -1;
}

/* Absence proves little: the struct is the old one only if nothing at all seems to touch offset 4.
 */
static enum blockfn_layout layout_of(bool loads_byte4, bool loads_word0, bool touches4)
{
    if (loads_byte4)
        return BLOCKFN_LAYOUT_COMPONENT;
    return loads_word0 && !touches4 ? BLOCKFN_LAYOUT_V24 : BLOCKFN_LAYOUT_UNKNOWN;
}

static enum blockfn_layout layout_read_x86(const uint8_t *code, uint64_t bytes)
{
    int base = argument_register_x86(code, bytes);
    bool byte4 = false, word0 = false, touches4 = false;

    for (uint64_t at = 0; base >= 0 && at < bytes; at++) {
        const uint8_t *p = code + at;
        byte4 |= loads_x86(p, bytes - at, (unsigned)base, 4, 1);
        word0 |= loads_x86(p, bytes - at, (unsigned)base, 0, 4);
        touches4 |= operand_x86(p, bytes - at, (unsigned)base, 4);
    }
    return layout_of(byte4, word0, touches4);
}

static uint32_t word_read(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

static enum blockfn_layout layout_read_aarch64(const uint8_t *code, uint64_t bytes)
{
    bool byte4 = false, word0 = false, touches4 = false;
    uint32_t base = 0; /* register that takes x0 */

    for (uint64_t at = 0; at + 4 <= bytes; at += 4) {
        uint32_t word = word_read(code + at);
        if (base == 0 && (word & 0xffffffe0) == 0xaa0003e0 && (word & 31) >= 19)
            base = word & 31; /* mov x19..x28, x0 */
        if (base == 0)
            continue;
        uint32_t load = word & 0xffffffe0, at_base = base << 5;
        byte4 |= load == (0x39401000 | at_base);    /* ldrb w, [base, #4] */
        word0 |= load == (0xb9400000 | at_base);    /* ldr w, [base] */
        touches4 |= load == (0x79400800 | at_base); /* ldrh w, [base, #4] */
        touches4 |= load == (0xb9400400 | at_base); /* ldr w, [base, #4] */
        touches4 |= load == (0xf9400000 | at_base); /* ldr x, [base] */
    }
    return layout_of(byte4, word0, touches4);
}

enum blockfn_layout blockfn_layout_read(uint16_t machine, const uint8_t *code, uint64_t bytes)
{
    return machine == ELF_MACHINE_X86_64 ? layout_read_x86(code, bytes)
                                         : layout_read_aarch64(code, bytes);
}
