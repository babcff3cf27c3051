import subprocess
import sys
import threading

import pyarrow as pa
import pytest

import intarsia as ia
from intarsia.dataset.batch_stream import Stream

ABANDON = """
import sys
import pyarrow.compute as pc
import intarsia as ia

reader = ia.dataset(sys.argv[1]).scanner(filter=pc.field("n") > 5).to_reader()
print(reader.read_next_batch().num_rows > 0)
"""


def batches(count):
    for i in range(count):
        yield pa.record_batch({"n": [i]})


@pytest.mark.parametrize("attempt", range(3))
def test_a_scan_abandoned_at_exit_ends_the_process_normally(tmp_path, attempt):
    table = pa.table({"n": range(400_000), "s": [str(i) for i in range(400_000)]})
    ia.write_table(table, tmp_path / "t.parquet", row_group_size=20_000)
    command = [sys.executable, "-c", ABANDON, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


def test_a_stream_gives_its_batches():
    assert [batch.num_rows for batch in Stream(batches(3))] == [1, 1, 1]


def test_a_closed_stream_is_at_its_end():
    stream = Stream(batches(3))
    next(stream)
    stream.close()
    assert list(stream) == []


def test_closing_waits_for_the_pull_under_way():
    entered, leave = threading.Event(), threading.Event()

    def slow():
        entered.set()
        leave.wait(10)
        yield pa.record_batch({"n": [1]})

    stream = Stream(slow())
    puller = threading.Thread(target=lambda: next(stream))
    puller.start()
    entered.wait(10)
    closer = threading.Thread(target=stream.close)
    closer.start()
    assert closer.is_alive()
    leave.set()
    closer.join(10)
    puller.join(10)
    assert not closer.is_alive()


AT_EXIT = """
import atexit, sys
import pyarrow.compute as pc
import intarsia as ia

data = ia.dataset(sys.argv[1])
atexit.register(lambda: print(data.to_table(filter=pc.field("n") >= 200_000).num_rows))
"""


def test_a_scan_at_exit_does_without_threads(tmp_path):
    ia.write_table(pa.table({"n": range(400_000)}), tmp_path / "t.parquet", row_group_size=50_000)
    command = [sys.executable, "-c", AT_EXIT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert (done.stdout, done.stderr, done.returncode) == ("200000\n", "", 0)
