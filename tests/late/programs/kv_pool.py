# SPDX-License-Identifier: Apache-2.0
"""A scheduler with a pool of KV blocks, of the names that vLLM gives them; no torch.

    kv_pool.py fcfs|priority|inprocess    reads commands, a line each, and answers each with the truth as JSON:
        set USED RUNNING WAITING SKIPPED    so many blocks and requests
        churn                               another thread changes all of it as fast as it can, used blocks being
                                            a multiple of 1000 and running at most 70, until `set`
        grow                                the scheduler gets more attributes: its dict moves
        replace                             another pool, half as large
"""
import collections
import json
import sys
import threading

TOTAL, BLOCK_TOKENS, MODEL_LEN = 70_001, 128, 4096


class KVCacheBlock:
    def __init__(self, block_id):
        self.block_id = block_id


class FreeKVCacheBlockQueue:
    def __init__(self, blocks):
        self.num_free_blocks = len(blocks)
        self.fake_free_list_head = KVCacheBlock(-1)


class BlockPool:
    def __init__(self, total):
        self.num_gpu_blocks = total
        self.enable_caching = True
        self.free_block_queue = FreeKVCacheBlockQueue([None] * total)
        self.free_block_queue.num_free_blocks -= 1  # the null block


class Coordinator:
    def __init__(self, total):
        self.block_pool = BlockPool(total)


class KVCacheManager:
    def __init__(self, total):
        self.coordinator = Coordinator(total)
        self.block_pool = self.coordinator.block_pool


class KVCacheConfig:
    def __init__(self):
        self.kv_cache_groups = [object()]


class FCFSRequestQueue(collections.deque):
    def put(self, count):
        self.clear()
        self.extend(range(count))


class PriorityRequestQueue:
    def __init__(self):
        self._heap = []

    def __len__(self):
        return len(self._heap)

    def put(self, count):
        self._heap = list(range(count))


class Scheduler:
    def __init__(self, queue, attributes):
        self.block_size = BLOCK_TOKENS
        self.max_model_len = MODEL_LEN
        self.kv_cache_config = KVCacheConfig()
        for i in range(attributes):
            setattr(self, f"attribute_{i}", i)
        self.waiting = queue()
        self.skipped_waiting = queue()
        self.running = []
        self.kv_cache_manager = KVCacheManager(TOTAL)

    def put(self, used, running, waiting, skipped):
        pool = self.kv_cache_manager.block_pool
        self.running = [object()] * running
        self.waiting.put(waiting)
        self.skipped_waiting.put(skipped)
        pool.free_block_queue.num_free_blocks = pool.num_gpu_blocks - 1 - used


class EngineCore:
    def __init__(self, queue, attributes):
        self.scheduler = Scheduler(queue, attributes)


class EngineCoreProc(EngineCore):
    def churn(self, stop):
        while not stop.is_set():
            for used in range(0, 70_000, 1000):
                self.scheduler.put(used, used // 1000 + 1, 0, 0)

    def answer(self):
        s, pool = self.scheduler, self.scheduler.kv_cache_manager.block_pool
        print(json.dumps({"usable": pool.num_gpu_blocks - 1,
                          "used": pool.num_gpu_blocks - 1 - pool.free_block_queue.num_free_blocks,
                          "running": len(s.running), "waiting": len(s.waiting) + len(s.skipped_waiting),
                          "block_tokens": BLOCK_TOKENS, "model_len": MODEL_LEN, "groups": 1}), flush=True)

    def run_busy_loop(self):
        stop, thread = threading.Event(), None
        for line in sys.stdin:
            words = line.split()
            if words[0] == "set":
                if thread:
                    stop.set()
                    thread.join()
                    stop, thread = threading.Event(), None
                self.scheduler.put(*map(int, words[1:]))
            elif words[0] == "churn":
                thread = threading.Thread(target=self.churn, args=(stop,), daemon=True)
                thread.start()
            elif words[0] == "grow":
                for i in range(200):
                    setattr(self.scheduler, f"more_{i}", i)
            elif words[0] == "replace":
                self.scheduler.kv_cache_manager = KVCacheManager(TOTAL // 2)
            self.answer()

    @staticmethod
    def run_engine_core(queue, attributes):
        engine_core = EngineCoreProc(queue, attributes)

        def signal_handler():  # makes a cell of it, as in vLLM
            return engine_core

        engine_core.run_busy_loop()
        return signal_handler


class LLMEngine:
    def __init__(self):
        self.engine_core = type("InprocClient", (), {})()
        self.engine_core.engine_core = EngineCoreProc(FCFSRequestQueue, 2)


class LLM:
    def __init__(self):
        self.llm_engine = LLMEngine()


def generate(llm):
    """No frame of the engine is there between two steps."""
    engine = llm.llm_engine.engine_core.engine_core
    for line in sys.stdin:
        engine.scheduler.put(*map(int, line.split()[1:]))
        engine.answer()


if __name__ == "__main__":
    if sys.argv[1] == "inprocess":
        generate(LLM())
    else:
        # few attributes: values of their own; many: a dict
        EngineCoreProc.run_engine_core(*{"fcfs": (FCFSRequestQueue, 60), "priority": (PriorityRequestQueue, 3)}[sys.argv[1]])
