/* SPDX-License-Identifier: Apache-2.0 */
/* procfacts: texts as Linux, container runtimes and vLLM write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "procfacts.h"

static size_t file_read(const char *path, char *buffer, size_t buffer_bytes)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(buffer, 1, buffer_bytes, f);
    fclose(f);
    return n;
}

static void test_stat_of_a_hostile_name(void **state)
{
    static const char text[] =
        "4711 (a) S 99 (b c\n) Z 1234 4711 4711 0 -1 4194304 100 0 0 0 5 6 0 "
        "0 20 0 1 0 8646241 10000 200 18446744073709551615 1 1 0";
    struct stat_facts f;
    assert_int_equal(stat_parse(text, sizeof(text) - 1, &f), 0);
    assert_string_equal(f.comm, "a) S 99 (b c\n");
    assert_int_equal(f.state, 'Z');
    assert_int_equal(f.ppid, 1234);
    assert_int_equal(f.start_ticks, 8646241);
}

static void test_stat_of_this_process(void **state)
{
    char text[4096];
    struct stat_facts f;
    size_t n = file_read("/proc/self/stat", text, sizeof(text));
    assert_int_equal(stat_parse(text, n, &f), 0);
    assert_string_equal(f.comm, "test_procfacts");
    assert_int_equal(f.state, 'R');
    assert_int_equal(f.ppid, getppid());
}

static void test_stat_cut_short(void **state)
{
    static const char text[] =
        "4711 (python) S 1 4711 4711 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 77";
    struct stat_facts f;
    assert_int_equal(stat_parse(text, sizeof(text) - 1, &f), 0);
    assert_int_equal(f.start_ticks, 77);
    for (size_t n = 0; n < sizeof(text) - 3; n++)
        assert_int_equal(stat_parse(text, n, &f), -EBADMSG);
}

static void test_status_in_a_container(void **state)
{
    static const char text[] =
        "Name:\tpython\nUid:\t1000\t0\t0\t0\nNSpid:\t4711\t12\t7\nThreads:\t1\n";
    struct status_facts f;
    assert_int_equal(status_parse(text, sizeof(text) - 1, &f), 0);
    assert_int_equal(f.uid, 1000);
    assert_int_equal(f.ns_tgid, 7);
    assert_int_equal(f.ns_depth, 2);
}

static void test_status_of_this_process(void **state)
{
    char text[8192];
    struct status_facts f;
    size_t n = file_read("/proc/self/status", text, sizeof(text));
    assert_int_equal(status_parse(text, n, &f), 0);
    assert_int_equal(f.uid, getuid());
    assert_int_equal(f.ns_tgid, getpid());
    assert_int_equal(status_parse("Name:\tx\n", 8, &f), -EBADMSG);
}

static void test_title_is_one_clean_line(void **state)
{
    static const char cmdline[] = "python\0-c\0import\nx\x1b[2J\0\0\0";
    char title[64], small[8];
    title_from_cmdline(cmdline, sizeof(cmdline), title, sizeof(title));
    assert_string_equal(title, "python -c import?x?[2J");
    title_from_cmdline(cmdline, sizeof(cmdline), small, sizeof(small));
    assert_string_equal(small, "python");
    title_from_cmdline("", 0, title, sizeof(title));
    assert_string_equal(title, "");
}

#define ID "3f4a0c1d9b8e7f6a5b4c3d2e1f00112233445566778899aabbccddeeff001122"
#define ID2 "aaaa0c1d9b8e7f6a5b4c3d2e1f00112233445566778899aabbccddeeff00bbbb"

static void check_container(const char *text, const char *id, const char *pod, const char *runtime)
{
    struct container_facts f;
    assert_int_equal(cgroup_parse(text, strlen(text), &f), id[0] != '\0');
    assert_string_equal(f.id, id);
    assert_string_equal(f.pod_uid, pod);
    assert_string_equal(f.runtime, runtime);
}

static void test_cgroup_of_the_host(void **state)
{
    check_container("0::/user.slice/user-1000.slice/session-3.scope\n", "", "", "");
    check_container("", "", "", "");
}

static void test_cgroup_of_docker(void **state)
{
    check_container("0::/system.slice/docker-" ID ".scope\n", ID, "", "docker");
    check_container("12:memory:/docker/" ID "\n11:cpu,cpuacct:/docker/" ID "\n", ID, "", "docker");
    check_container("0::/docker/" ID "/docker/" ID2 "\n", ID2, "", "docker"); /* docker in docker */
}

static void test_cgroup_of_kubernetes(void **state)
{
    check_container("0::/kubepods.slice/kubepods-burstable.slice/"
                    "kubepods-burstable-pod8a7f3c1e_9b2d_4f6a_8c1e_0123456789ab.slice/"
                    "cri-containerd-" ID ".scope\n",
                    ID, "8a7f3c1e-9b2d-4f6a-8c1e-0123456789ab", "containerd");
    check_container("0::/kubepods.slice/kubepods-pod8a7f3c1e_9b2d_4f6a_8c1e_0123456789ab.slice/"
                    "crio-" ID ".scope\n",
                    ID, "8a7f3c1e-9b2d-4f6a-8c1e-0123456789ab", "cri-o");
    check_container("5:memory:/kubepods/besteffort/pod8a7f3c1e-9b2d-4f6a-8c1e-0123456789ab/" ID
                    "\n",
                    ID, "8a7f3c1e-9b2d-4f6a-8c1e-0123456789ab", "");
    check_container("4:cpu:/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" ID "\n", ID,
                    "0123456789abcdef0123456789abcdef", ""); /* static pod */
}

static void test_cgroup_of_podman(void **state)
{
    check_container("0::/machine.slice/libpod-" ID ".scope/container\n", ID, "", "podman");
    /* the monitor beside the container is not in it */
    check_container("0::/machine.slice/libpod-conmon-" ID ".scope\n", "", "", "");
}

static void test_cgroup_digits_of_another_length_are_no_id(void **state)
{
    check_container("0::/docker/" ID "0\n", "", "", "");
    check_container("0::/docker/x" ID "\n", "", "", "");
    check_container("0::/build/0123456789abcdef\n", "", "", "");
}

static void test_environ_takes_whole_names(void **state)
{
    static const char text[] = "LOCAL_RANK=3\0XRANK=9\0RANK=11\0RANK=12\0EMPTY=\0LAST=z";
    char value[8];
    assert_int_equal(environ_get(text, sizeof(text) - 1, "RANK", value, sizeof(value)), 2);
    assert_string_equal(value, "11");
    assert_int_equal(environ_get(text, sizeof(text) - 1, "EMPTY", value, sizeof(value)), 0);
    assert_int_equal(environ_get(text, sizeof(text) - 1, "LAST", value, sizeof(value)), 1);
    assert_int_equal(environ_get(text, sizeof(text) - 1, "ANK", value, sizeof(value)), -ENOENT);
    assert_int_equal(environ_get("A=12345678", 10, "A", value, sizeof(value)), -ENOBUFS);
}

static void test_visible_devices(void **state)
{
    uint16_t ids[VISIBLE_DEVICES_MAX];
    assert_int_equal(visible_devices_parse("2,3", ids), 2);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], 3);
    assert_int_equal(visible_devices_parse(" 0, 4 ,15 ", ids), 3);
    assert_int_equal(ids[2], 15);
    assert_int_equal(visible_devices_parse("", ids), 0);
}

static void test_visible_devices_malformed(void **state)
{
    uint16_t ids[VISIBLE_DEVICES_MAX];
    char many[512] = "0";
    for (int i = 1; i <= VISIBLE_DEVICES_MAX; i++)
        snprintf(many + strlen(many), sizeof(many) - strlen(many), ",%d", i);
    assert_int_equal(visible_devices_parse("3,2", ids), -EINVAL);
    assert_int_equal(visible_devices_parse("2,2", ids), -EINVAL);
    assert_int_equal(visible_devices_parse("0,,1", ids), -EINVAL);
    assert_int_equal(visible_devices_parse("0,1,", ids), -EINVAL);
    assert_int_equal(visible_devices_parse("a", ids), -EINVAL);
    assert_int_equal(visible_devices_parse("-1", ids), -EINVAL);
    assert_int_equal(visible_devices_parse("0;1", ids), -EINVAL);
    assert_int_equal(visible_devices_parse(many, ids), -EINVAL);
}

/* groups: DP, PP, PCP, TP, DCP, EP */
static void check_title(const char *title, enum title_kind kind, const int32_t group[GROUP_COUNT],
                        int32_t rank, bool inferred)
{
    struct title_facts t;
    bool got;
    title_parse(title, &t);
    assert_int_equal(t.kind, kind);
    for (int g = 0; g < GROUP_COUNT; g++)
        if (t.group[g] != group[g])
            fail_msg("%s: %s is %d", title, title_group_name((enum title_group)g), t.group[g]);
    assert_int_equal(title_rank(&t, &got), rank);
    assert_int_equal(got, inferred);
}
#define GROUPS(...)                                                                                \
    (const int32_t[GROUP_COUNT])                                                                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define NONE_OF_THEM GROUPS(-1, -1, -1, -1, -1, -1)

static void test_title_of_one_group_is_the_rank(void **state)
{
    check_title("VLLM::Worker", TITLE_WORKER, NONE_OF_THEM, 0, false);
    check_title("VLLM::Worker_TP1", TITLE_WORKER, GROUPS(-1, -1, -1, 1, -1, -1), 1, false);
    check_title("VLLM::Worker_PP3", TITLE_WORKER, GROUPS(-1, 3, -1, -1, -1, -1), 3, false);
    check_title("VLLM::Worker_TP13_EP13", TITLE_WORKER, GROUPS(-1, -1, -1, 13, -1, 13), 13, false);
    check_title("VLLM::Worker_TP2_DCP0", TITLE_WORKER, GROUPS(-1, -1, -1, 2, 0, -1), 2, false);
    check_title("MyService::Worker_TP1", TITLE_WORKER, GROUPS(-1, -1, -1, 1, -1, -1), 1, false);
}

static void test_title_of_experts_is_the_rank_of_the_whole(void **state)
{
    check_title("VLLM::Worker_DP1_TP0_EP2", TITLE_WORKER, GROUPS(1, -1, -1, 0, -1, 2), 2, true);
    /* with pipeline stages the expert index repeats in each stage */
    check_title("VLLM::Worker_DP1_PP1_TP0_EP2", TITLE_WORKER, GROUPS(1, 1, -1, 0, -1, 2), -1,
                false);
}

static void test_title_of_several_groups_needs_their_sizes(void **state)
{
    struct title_facts t;
    check_title("VLLM::Worker_PP1_TP2", TITLE_WORKER, GROUPS(-1, 1, -1, 2, -1, -1), -1, false);
    title_parse("VLLM::Worker_PP1_TP2", &t);
    assert_int_equal(title_rank_sized(&t, GROUPS(0, 2, 0, 4, 0, 0)), 6);
    assert_int_equal(title_rank_sized(&t, GROUPS(0, 0, 0, 4, 0, 0)), 6); /* outermost: no need */
    assert_int_equal(title_rank_sized(&t, GROUPS(0, 2, 0, 0, 0, 0)), -1);
    assert_int_equal(title_rank_sized(&t, GROUPS(0, 2, 0, 2, 0, 0)), -1); /* TP2 of 2: a lie */
    title_parse("VLLM::Worker_DP1_PP0_TP3", &t);
    assert_int_equal(title_rank_sized(&t, GROUPS(2, 2, 0, 4, 0, 0)), 11);
}

static void test_titles_of_engines(void **state)
{
    check_title("VLLM::EngineCore", TITLE_ENGINE, NONE_OF_THEM, 0, true);
    check_title("VLLM::EngineCore_DP1", TITLE_ENGINE, GROUPS(1, -1, -1, -1, -1, -1), 1, true);
    check_title("VLLM::EngineCore_0", TITLE_ENGINE, NONE_OF_THEM, 0, true);
    /* vLLM 0.10: the worker wrote its group behind the engine's title */
    check_title("VLLM::EngineCore_0 TP0", TITLE_WORKER, GROUPS(-1, -1, -1, 0, -1, -1), 0, false);
    check_title("VLLM::EngineCore_0  TP3", TITLE_WORKER, GROUPS(-1, -1, -1, 3, -1, -1), 3, false);
    check_title("VLLM::EngineCore_1 PP1 TP0", TITLE_WORKER, GROUPS(1, 1, -1, 0, -1, -1), -1, false);
}

static void test_titles_of_others(void **state)
{
    check_title("VLLM::APIServer_1", TITLE_API_SERVER, NONE_OF_THEM, -1, false);
    check_title("VLLM::DPCoordinator", TITLE_COORDINATOR, NONE_OF_THEM, -1, false);
    check_title("ray::RayWorkerWrapper.execute_method", TITLE_RAY, NONE_OF_THEM, -1, false);
    check_title("ray::WorkerDict.actor", TITLE_OTHER, NONE_OF_THEM, -1, false);
    check_title("VLLM::WorkerDict_TP1", TITLE_OTHER, NONE_OF_THEM, -1, false);
    check_title("python train.py std::Worker_TP1", TITLE_OTHER, NONE_OF_THEM, -1, false);
    check_title("", TITLE_OTHER, NONE_OF_THEM, -1, false);
}

static void test_titles_that_are_cut_or_new_name_no_rank(void **state)
{
    check_title("VLLM::Worker_TP", TITLE_WORKER, NONE_OF_THEM, -1, false);
    check_title("VLLM::Worker_DP0_T", TITLE_WORKER, GROUPS(0, -1, -1, -1, -1, -1), -1, false);
    check_title("VLLM::Worker_TP99999999999999999999", TITLE_WORKER, NONE_OF_THEM, -1, false);
    check_title("VLLM::Worker_XX1_TP2", TITLE_WORKER, NONE_OF_THEM, -1, false);
    check_title("VLLM::Worker_TP2x", TITLE_WORKER, GROUPS(-1, -1, -1, 2, -1, -1), -1, false);
    check_title("VLLM::EngineCore_x", TITLE_ENGINE, NONE_OF_THEM, -1, false);
}

static void test_titles_of_the_first_workers(void **state)
{
    check_title("VllmWorker rank=3", TITLE_WORKER, NONE_OF_THEM, 3, false);
    check_title("VllmWorker-12", TITLE_WORKER, NONE_OF_THEM, 12, false);
    check_title("VllmWorkerProcess", TITLE_WORKER, NONE_OF_THEM, -1, false);
}

static void test_replica_comes_from_the_parent(void **state)
{
    struct title_facts worker, engine, shell;
    title_parse("VLLM::Worker_TP0", &worker);
    title_parse("VLLM::EngineCore_DP1", &engine);
    title_parse("bash", &shell);
    assert_int_equal(title_replica(&worker, &engine), 1);
    assert_int_equal(title_replica(&worker, &shell), -1);
    assert_int_equal(title_replica(&worker, NULL), -1);
    title_parse("VLLM::Worker_DP0_TP0_EP0", &worker);
    assert_int_equal(title_replica(&worker, &engine), 0);
}

static const char torchrun[] = "RANK=5\0WORLD_SIZE=8\0LOCAL_RANK=1";

static void check_rank(struct rank_inputs in, int32_t rank, int32_t world, const char *source)
{
    struct rank_facts f;
    rank_decide(&in, &f);
    assert_int_equal(f.rank, rank);
    assert_int_equal(f.world_size, world);
    assert_string_equal(f.source, source);
}

static void test_rank_in_order_of_trust(void **state)
{
    struct rank_inputs in = {.hccl_rank = 7,
                             .hccl_world_size = 16,
                             .title = "VLLM::Worker_TP2",
                             .environ_text = torchrun,
                             .environ_bytes = sizeof(torchrun)};
    check_rank(in, 7, 16, "hccl");
    in.hccl_rank = in.hccl_world_size = -1;
    check_rank(in, 2, 8, "title");
    in.title = "python train.py --rank 3";
    check_rank(in, 5, 8, "environ");
    in.environ_text = NULL;
    check_rank(in, 3, -1, "cmdline");
    in.title = "python train.py --rankle 3 --rank=x";
    check_rank(in, -1, -1, "");
    in.title = NULL;
    check_rank(in, -1, -1, "");
}

static void test_title_without_rank_leaves_it_to_the_environment(void **state)
{
    struct rank_inputs in = {.hccl_rank = -1,
                             .hccl_world_size = -1,
                             .title = "ray::RayWorkerWrapper",
                             .environ_text = torchrun,
                             .environ_bytes = sizeof(torchrun)};
    check_rank(in, 5, 8, "environ");
    in.title = "VLLM::Worker_PP1_TP2";
    check_rank(in, 5, 8, "environ");
}

static void test_local_rank_of_the_command_line_is_inferred(void **state)
{
    struct rank_inputs in = {
        .hccl_rank = -1, .hccl_world_size = -1, .title = "python -u t.py --local_rank=6 --x"};
    struct rank_facts f;
    rank_decide(&in, &f);
    assert_int_equal(f.rank, 6);
    assert_int_equal(f.local_rank, 6);
    assert_true(f.inferred);
    assert_string_equal(f.source, "cmdline");
}

static void test_environ_ranks_that_are_no_numbers(void **state)
{
    static const char text[] = "RANK=1x\0WORLD_SIZE=-4";
    struct rank_inputs in = {.hccl_rank = -1,
                             .hccl_world_size = -1,
                             .environ_text = text,
                             .environ_bytes = sizeof(text)};
    check_rank(in, -1, -1, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stat_of_a_hostile_name),
        cmocka_unit_test(test_stat_of_this_process),
        cmocka_unit_test(test_stat_cut_short),
        cmocka_unit_test(test_status_in_a_container),
        cmocka_unit_test(test_status_of_this_process),
        cmocka_unit_test(test_title_is_one_clean_line),
        cmocka_unit_test(test_cgroup_of_the_host),
        cmocka_unit_test(test_cgroup_of_docker),
        cmocka_unit_test(test_cgroup_of_kubernetes),
        cmocka_unit_test(test_cgroup_of_podman),
        cmocka_unit_test(test_cgroup_digits_of_another_length_are_no_id),
        cmocka_unit_test(test_environ_takes_whole_names),
        cmocka_unit_test(test_visible_devices),
        cmocka_unit_test(test_visible_devices_malformed),
        cmocka_unit_test(test_title_of_one_group_is_the_rank),
        cmocka_unit_test(test_title_of_experts_is_the_rank_of_the_whole),
        cmocka_unit_test(test_title_of_several_groups_needs_their_sizes),
        cmocka_unit_test(test_titles_of_engines),
        cmocka_unit_test(test_titles_of_others),
        cmocka_unit_test(test_titles_that_are_cut_or_new_name_no_rank),
        cmocka_unit_test(test_titles_of_the_first_workers),
        cmocka_unit_test(test_replica_comes_from_the_parent),
        cmocka_unit_test(test_rank_in_order_of_trust),
        cmocka_unit_test(test_title_without_rank_leaves_it_to_the_environment),
        cmocka_unit_test(test_local_rank_of_the_command_line_is_inferred),
        cmocka_unit_test(test_environ_ranks_that_are_no_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
