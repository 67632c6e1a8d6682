/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: defaults, files in their order, and what a wrong line says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "config_value.h"
#include "log.h"

struct fixture {
    char dir[64];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    strcpy(f->dir, "/tmp/npumem-config-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", ((struct fixture *)*state)->dir);
    assert_int_equal(system(command), 0);
    free(*state);
    return 0;
}

static void write_bytes(struct fixture *f, const char *name, const char *data, size_t size)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/npumemd.conf.d", f->dir);
    mkdir(path, 0755);
    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
}

static void write_text(struct fixture *f, const char *name, const char *text)
{
    write_bytes(f, name, text, strlen(text));
}

static void test_defaults(void **state)
{
    struct config c;

    config_init(&c);
    assert_int_equal(c.probes_block_threshold, 1048576);
    assert_int_equal(c.probes_ring_bytes, 16777216);
    assert_int_equal(c.probes_poll_interval, 50000000);
    assert_int_equal(c.probes_block_detail, CONFIG_BLOCK_DETAIL_LARGE);
    assert_int_equal(c.store_max_bytes, 1073741824);
    assert_int_equal(c.store_max_age, 30ll * 86400 * 1000000000);
    assert_int_equal(c.store_sample_interval, 10000000000);
    assert_int_equal(c.control_max_connections, 32);
    assert_int_equal(c.control_max_request_bytes, 1048576);
    assert_string_equal(c.control_socket_group, "npumem");
    assert_string_equal(c.daemon_svm_dir, "/proc/svm");
    assert_true(c.daemon_discovery);
    assert_int_equal(config_log_level(&c), LOG_INFO);
}

/* Every default of the table is a value that the table itself accepts. */
static void test_sample_file_reads_back(void **state)
{
    struct fixture *f = *state;
    struct config defaults, c;
    struct error error = {0};
    char *sample = NULL, committed[32768], *active;
    size_t size, n = 0;
    FILE *stream = open_memstream(&sample, &size), *file;

    config_print_sample(stream);
    fclose(stream);
    file = fopen(NPUMEM_SOURCE_DIR "/systemd/npumemd.conf", "re");
    assert_non_null(file);
    committed[fread(committed, 1, sizeof(committed) - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(sample, committed);
    /* "#key = value" without the #: the settings themselves. */
    active = malloc(size + 1);
    for (size_t i = 0; i <= size; i++)
        if (sample[i] != '#' || (i && sample[i - 1] != '\n') || sample[i + 1] == ' ')
            active[n++] = sample[i];
    write_text(f, "npumemd.conf", active);
    assert_non_null(strstr(active, "\nmax_bytes = 1GiB\n"));
    config_init(&defaults);
    memset(&c, 0, sizeof(c));
    assert_int_equal(config_read_dir(&c, f->dir, &error), 0);
    assert_memory_equal(&c, &defaults, sizeof(c));
    free(sample);
    free(active);
}

static void test_order(void **state)
{
    struct fixture *f = *state;
    struct config c;
    struct error error = {0};

    config_init(&c);
    assert_int_equal(config_read_dir(&c, f->dir, &error), 0);
    assert_int_equal(c.store_max_bytes, 1073741824);
    write_text(f, "npumemd.conf",
               "# comment\n\n[store]\nmax_bytes = 2 GiB\nmax_age=12h\n; more\n"
               "[daemon]\nlog_level = Debug\ndiscovery = off\n");
    write_text(f, "npumemd.conf.d/20-b.conf", "[store]\r\nmax_bytes = 20MiB\r\n");
    write_text(f, "npumemd.conf.d/10-a.conf",
               "[store]\nmax_bytes = 10MiB\nsample_interval = 500ms");
    write_text(f, "npumemd.conf.d/30-c.conf.bak", "[store]\nmax_bytes = 30MiB\n");
    write_text(f, "npumemd.conf.d/.conf", "[store]\nmax_bytes = 40MiB\n");
    assert_int_equal(config_read_dir(&c, f->dir, &error), 0);
    assert_int_equal(c.store_max_bytes, 20 << 20);
    assert_int_equal(c.store_max_age, 12ll * 3600 * 1000000000);
    assert_int_equal(c.store_sample_interval, 500000000);
    assert_int_equal(config_log_level(&c), LOG_DEBUG);
    assert_false(c.daemon_discovery);
    assert_int_equal(config_set_assignment(&c, "store.max_bytes=5MiB", "--set", &error), 0);
    assert_int_equal(c.store_max_bytes, 5 << 20);
}

static void test_bad_lines(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *what, *fix;
    } cases[] = {
        {"[store]\nmax_bytes = 5 parsecs\n", -EINVAL,
         "npumemd.conf:2: store.max_bytes = \"5 parsecs\" is not a valid value", "1MiB to 1TiB"},
        {"[store]\n\nmax_bytes = 10\n", -ERANGE, ":3: store.max_bytes = \"10\" is out of range",
         "1MiB to 1TiB"},
        {"[store]\nmax_bytes = -1\n", -EINVAL, ":2: store.max_bytes", "1MiB"},
        {"[store]\nmax_bytes = 99999999999999999999\n", -ERANGE, ":2: store.max_bytes", "1MiB"},
        {"[store]\nmax_bytes =\n", -EINVAL, ":2: store.max_bytes = \"\"", "1MiB"},
        {"[store]\nmax_age = 10 fortnights\n", -EINVAL, ":2: store.max_age", "1min to 3650d"},
        {"[store]\nmax_byte = 1GiB\n", -EINVAL, ":2: no setting \"store.max_byte\"", "--help"},
        {"[stroe]\nmax_bytes = 1GiB\n", -EINVAL, ":2: no setting \"stroe.max_bytes\"", "--help"},
        {"max_bytes = 1GiB\n", -EINVAL, ":1: \"max_bytes\" stands before the first [section]", ""},
        {"[store\n", -EINVAL, ":1: section without ]", ""},
        {"[]\n", -EINVAL, ":1: bad section name", ""},
        {"[store]\nmax_bytes\n", -EINVAL, ":2: neither [section] nor key = value", ""},
        {"[daemon]\ndiscovery = maybe\n", -EINVAL, ":2: daemon.discovery", "yes or no"},
        {"[daemon]\nlog_level = inf\n", -EINVAL, ":2: daemon.log_level", "error|warning"},
        {"[daemon]\nsvm_dir = proc/svm\n", -EINVAL, ":2: daemon.svm_dir", "absolute path"},
        {"[control]\nmax_connections = 0\n", -ERANGE, ":2: control.max_connections", "1 to 1024"},
        {"[control]\nmax_connections = 3x\n", -EINVAL, ":2: control.max_connections", "1 to 1024"},
        {"[control]\nsocket_group = 0123456789012345678901234567890123456789\n", -ERANGE,
         ":2: control.socket_group", "31 bytes"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct config c, defaults;
        struct error error = {0};

        config_init(&c);
        config_init(&defaults);
        write_text(f, "npumemd.conf", cases[i].text);
        assert_int_equal(config_read_dir(&c, f->dir, &error), cases[i].code);
        if (!strstr(error.what, cases[i].what) || !strstr(error.fix, cases[i].fix))
            fail_msg("%s: %s (%s)", cases[i].text, error.what, error.fix);
        assert_memory_equal(&c, &defaults, sizeof(c));
    }
}

static void test_not_a_text_file(void **state)
{
    struct fixture *f = *state;
    struct config c;
    struct error error = {0};
    char path[256];
    static char longer[3000];

    config_init(&c);
    write_bytes(f, "npumemd.conf", "[store]\nmax_bytes\0 = 1GiB\n", 26);
    assert_int_equal(config_read_dir(&c, f->dir, &error), -EINVAL);
    assert_non_null(strstr(error.what, "npumemd.conf:2: holds a NUL byte"));
    memset(longer, 'x', sizeof(longer) - 1);
    write_text(f, "npumemd.conf", longer);
    assert_int_equal(config_read_dir(&c, f->dir, &error), -EINVAL);
    assert_non_null(strstr(error.what, "npumemd.conf:1: line is longer than"));
    snprintf(path, sizeof(path), "%s/npumemd.conf", f->dir);
    unlink(path);
    mkdir(path, 0755);
    assert_int_equal(config_read_dir(&c, f->dir, &error), -EISDIR);
    assert_int_equal(config_read_file(&c, "/nonexistent", &error), -ENOENT);
}

static void test_assignments(void **state)
{
    static const char *const bad[] = {"", "=", "store.max_bytes", "=5", "store=5", ".=1"};
    struct config c;
    struct error error = {0};

    config_init(&c);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_true(config_set_assignment(&c, bad[i], "--set", &error) < 0);
        assert_memory_equal(error.what, "--set: ", 7);
    }
}

static void test_formats(void **state)
{
    char text[32];

    config_format_bytes(16 << 20, text, sizeof(text));
    assert_string_equal(text, "16MiB");
    config_format_bytes(1536, text, sizeof(text));
    assert_string_equal(text, "1536B");
    config_format_duration(90ull * 1000000000, text, sizeof(text));
    assert_string_equal(text, "90s");
    config_format_duration(50000000, text, sizeof(text));
    assert_string_equal(text, "50ms");
}

static void test_help_names_every_setting(void **state)
{
    static const char *const names[] = {
#define CONFIG(type, section, key, minimum, maximum, fallback, values, help) #section "." #key "=",
#include "config.def"
#undef CONFIG
    };
    char *help = NULL;
    size_t size;
    FILE *stream = open_memstream(&help, &size);

    config_print_help(stream);
    fclose(stream);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_non_null(strstr(help, names[i]));
    assert_non_null(strstr(help, "(1ms to 10s)"));
    free(help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test_setup_teardown(test_sample_file_reads_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_a_text_file, setup, teardown),
        cmocka_unit_test(test_assignments),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_help_names_every_setting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
