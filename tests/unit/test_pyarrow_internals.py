"""The behaviour of pyarrow that ``intarsia.pyarrow_internals`` relies on, one test for each."""

import operator
import pickle
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from intarsia.errors import PredicateError
from intarsia.limits import MAX_EXPRESSION_DEPTH
from intarsia.pyarrow_internals import (
    call,
    row_groups_of,
    s3_options_of,
    serialized_of,
)

X = pc.field("x")


def items_of(expression):
    return serialized_of(expression).items


def test_a_call_of_an_unknown_function_is_an_expression():
    expression = call("nonesuch", [X, pc.scalar(2)])
    assert str(expression) == "nonesuch(x, 2)"
    assert pickle.loads(pickle.dumps(expression)).equals(expression)
    assert items_of(expression) == [
        ("call", "nonesuch"),
        ("field_ref", "x"),
        ("literal", "0"),
        ("end", "nonesuch"),
    ]


def test_evaluating_an_unknown_function_raises_a_key_error():
    with pytest.raises(pa.ArrowKeyError, match="nonesuch"):
        pa.table({"x": [1]}).filter(call("nonesuch", [X]))


def test_the_pickle_state_is_one_buffer_with_an_ipc_file_of_one_batch():
    _, arguments = (X == 1).__reduce__()
    assert len(arguments) == 1
    with pa.ipc.open_file(arguments[0]) as reader:
        assert reader.num_record_batches == 1
        assert reader.get_batch(0).num_rows == 1


def test_the_metadata_lists_the_nodes_in_prefix_order():
    expression = ((X + 1) > 2) & pc.field("a", "b").isin([3])
    assert items_of(expression) == [
        ("call", "and_kleene"),
        ("call", "greater"),
        ("call", "add_checked"),
        ("field_ref", "x"),
        ("literal", "0"),
        ("end", "add_checked"),
        ("literal", "1"),
        ("end", "greater"),
        ("call", "is_in"),
        ("nested_field_ref", "2"),
        ("field_ref", "a"),
        ("field_ref", "b"),
        ("options", "2"),
        ("end", "is_in"),
        ("end", "and_kleene"),
    ]


def test_the_metadata_repeats_keys_which_a_dict_loses():
    _, (buffer,) = ((X == 1) & (X == 2)).__reduce__()
    with pa.ipc.open_file(buffer) as reader:
        lost = reader.schema.metadata
    keys = [key for key, _ in items_of((X == 1) & (X == 2))]
    assert keys.count("call") == 3
    assert len(lost) < len(keys)


def test_literals_and_options_are_columns_by_their_numbers():
    serialized = serialized_of((pa.scalar(7, pa.int8()) == X) | X.isin(["a", None]))
    values = [serialized.batch.column(int(at)) for kind, at in serialized.items if at.isdigit()]
    assert values[0].type == pa.int8()
    assert values[0].to_pylist() == [7]
    assert values[1].field("value_set").to_pylist() == [["a", None]]
    assert values[1].field("null_matching_behavior").to_pylist() == [0]


def test_metadata_may_hold_any_text():
    name = "a\0ü\U0001f600"
    assert items_of(pc.field(name)) == [("field_ref", name)]


@pytest.mark.parametrize(
    "expression",
    [X.isin([1, None]), X.cast(pa.int8()), X.is_null(), pc.match_like(X, "a%"), pc.round(X, 2)],
    ids=str,
)
def test_the_options_of_a_call_are_read_back(expression):
    batch = serialized_of(expression).batch
    options = {name: batch.column(0)[0][name] for name in batch.column(0).type.names}
    function = items_of(expression)[0][1]
    assert call(function, [X], options).equals(expression)


def test_fields_by_position_cannot_be_serialized():
    assert serialized_of(pc.field(0) == 1) is None


def test_deep_expressions_are_rejected():
    deep = reduce(operator.or_, [number == X for number in range(MAX_EXPRESSION_DEPTH + 2)])
    with pytest.raises(PredicateError, match="nests"):
        serialized_of(deep)


def test_the_pickle_state_of_a_fragment_ends_with_its_row_groups(tmp_path):
    pq.write_table(pa.table({"a": range(6)}), tmp_path / "a.parquet", row_group_size=2)
    (fragment,) = pads.dataset(tmp_path).get_fragments()
    assert row_groups_of(fragment) is None
    assert [row_groups_of(part) for part in fragment.split_by_row_group()] == [[0], [1], [2]]


def test_the_pickle_state_of_an_s3_file_system_is_its_options():
    options = {
        "access_key": "a", "secret_key": "s", "session_token": "t", "region": "eu-west-1",
        "scheme": "http", "endpoint_override": "localhost:9", "force_virtual_addressing": True,
        "tls_ca_file_path": "ca.pem",
    }  # fmt: skip
    actual = s3_options_of(pafs.S3FileSystem(**options))
    assert {name: actual[name] for name in options} == options
    others = {name: actual[name] for name in ("anonymous", "role_arn", "proxy_options")}
    assert others["proxy_options"].pop("host") == ""
    assert (others["anonymous"], others["role_arn"]) == (False, "")
