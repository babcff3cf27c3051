"""The structures of ``parquet.thrift``, with the specification's names and field numbers.

Fields that the specification types as an enum are plain ``int`` here, because files may contain
values that are newer than this list. The enums below name the known values.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from intarsia.parquet.thrift import (
    BINARY,
    BOOL,
    DOUBLE,
    I8,
    I16,
    I32,
    I64,
    STRING,
    field,
    list_of,
    struct,
    structs_of,
)


class Type(IntEnum):
    """Physical types."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


class ConvertedType(IntEnum):
    """The older annotation of a physical type, replaced by ``LogicalType``."""

    UTF8 = 0
    MAP = 1
    MAP_KEY_VALUE = 2
    LIST = 3
    ENUM = 4
    DECIMAL = 5
    DATE = 6
    TIME_MILLIS = 7
    TIME_MICROS = 8
    TIMESTAMP_MILLIS = 9
    TIMESTAMP_MICROS = 10
    UINT_8 = 11
    UINT_16 = 12
    UINT_32 = 13
    UINT_64 = 14
    INT_8 = 15
    INT_16 = 16
    INT_32 = 17
    INT_64 = 18
    JSON = 19
    BSON = 20
    INTERVAL = 21


class FieldRepetitionType(IntEnum):
    REQUIRED = 0
    OPTIONAL = 1
    REPEATED = 2


class Encoding(IntEnum):
    PLAIN = 0
    PLAIN_DICTIONARY = 2
    RLE = 3
    BIT_PACKED = 4
    DELTA_BINARY_PACKED = 5
    DELTA_LENGTH_BYTE_ARRAY = 6
    DELTA_BYTE_ARRAY = 7
    RLE_DICTIONARY = 8
    BYTE_STREAM_SPLIT = 9
    ALP = 10


DICTIONARY_ENCODINGS = frozenset({Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY})
"""Encodings whose values are dictionary indices. PLAIN_DICTIONARY is the deprecated name."""


class CompressionCodec(IntEnum):
    UNCOMPRESSED = 0
    SNAPPY = 1
    GZIP = 2
    LZO = 3
    BROTLI = 4
    LZ4 = 5
    ZSTD = 6
    LZ4_RAW = 7


class PageType(IntEnum):
    DATA_PAGE = 0
    INDEX_PAGE = 1
    DICTIONARY_PAGE = 2
    DATA_PAGE_V2 = 3


class EdgeInterpolationAlgorithm(IntEnum):
    SPHERICAL = 0
    VINCENTY = 1
    THOMAS = 2
    ANDOYER = 3
    KARNEY = 4


class BoundaryOrder(IntEnum):
    UNORDERED = 0
    ASCENDING = 1
    DESCENDING = 2


@struct
class Empty:
    """A struct without fields: a union's member that carries no data."""


@struct
class DecimalType:
    scale: int = field(1, I32, required=True)
    precision: int = field(2, I32, required=True)


@struct
class TimeUnit:
    MILLIS: Empty | None = field(1, Empty)
    MICROS: Empty | None = field(2, Empty)
    NANOS: Empty | None = field(3, Empty)

    @property
    def per_second(self) -> int | None:
        """Ticks per second. None if the unit is unknown."""
        for member, ticks in (
            (self.MILLIS, 1_000),
            (self.MICROS, 1_000_000),
            (self.NANOS, 1_000_000_000),
        ):
            if member is not None:
                return ticks
        return None


@struct
class TimeType:
    isAdjustedToUTC: bool = field(1, BOOL, required=True)  # noqa: N815 # the specified name
    unit: TimeUnit = field(2, TimeUnit, required=True)


@struct
class IntType:
    bitWidth: int = field(1, I8, required=True)  # noqa: N815 # the specified name
    isSigned: bool = field(2, BOOL, required=True)  # noqa: N815 # the specified name


@struct
class VariantType:
    specification_version: int | None = field(1, I8)


@struct
class GeometryType:
    crs: str | None = field(1, STRING)


@struct
class GeographyType:
    crs: str | None = field(1, STRING)
    algorithm: int | None = field(2, I32)


@struct
class LogicalType:
    """A union: at most one member is set, none if the file uses a newer type."""

    STRING: Empty | None = field(1, Empty)
    MAP: Empty | None = field(2, Empty)
    LIST: Empty | None = field(3, Empty)
    ENUM: Empty | None = field(4, Empty)
    DECIMAL: DecimalType | None = field(5, DecimalType)
    DATE: Empty | None = field(6, Empty)
    TIME: TimeType | None = field(7, TimeType)
    TIMESTAMP: TimeType | None = field(8, TimeType)
    INTEGER: IntType | None = field(10, IntType)
    UNKNOWN: Empty | None = field(11, Empty)
    JSON: Empty | None = field(12, Empty)
    BSON: Empty | None = field(13, Empty)
    UUID: Empty | None = field(14, Empty)
    FLOAT16: Empty | None = field(15, Empty)
    VARIANT: VariantType | None = field(16, VariantType)
    GEOMETRY: GeometryType | None = field(17, GeometryType)
    GEOGRAPHY: GeographyType | None = field(18, GeographyType)
    FILE: Empty | None = field(19, Empty)


@struct
class SchemaElement:
    type: int | None = field(1, I32)
    type_length: int | None = field(2, I32)
    repetition_type: int | None = field(3, I32)
    name: str = field(4, STRING, required=True)
    num_children: int | None = field(5, I32)
    converted_type: int | None = field(6, I32)
    scale: int | None = field(7, I32)
    precision: int | None = field(8, I32)
    field_id: int | None = field(9, I32)
    logicalType: LogicalType | None = field(10, LogicalType)  # noqa: N815 # the specified name


@struct
class Statistics:
    max: bytes | None = field(1, BINARY)
    min: bytes | None = field(2, BINARY)
    null_count: int | None = field(3, I64)
    distinct_count: int | None = field(4, I64)
    max_value: bytes | None = field(5, BINARY)
    min_value: bytes | None = field(6, BINARY)
    is_max_value_exact: bool | None = field(7, BOOL)
    is_min_value_exact: bool | None = field(8, BOOL)
    nan_count: int | None = field(9, I64)


@struct
class SizeStatistics:
    unencoded_byte_array_data_bytes: int | None = field(1, I64)
    repetition_level_histogram: list[int] | None = field(2, list_of(I64))
    definition_level_histogram: list[int] | None = field(3, list_of(I64))


@struct
class BoundingBox:
    xmin: float = field(1, DOUBLE, required=True)
    xmax: float = field(2, DOUBLE, required=True)
    ymin: float = field(3, DOUBLE, required=True)
    ymax: float = field(4, DOUBLE, required=True)
    zmin: float | None = field(5, DOUBLE)
    zmax: float | None = field(6, DOUBLE)
    mmin: float | None = field(7, DOUBLE)
    mmax: float | None = field(8, DOUBLE)


@struct
class GeospatialStatistics:
    bbox: BoundingBox | None = field(1, BoundingBox)
    geospatial_types: list[int] | None = field(2, list_of(I32))


@struct
class KeyValue:
    key: str = field(1, STRING, required=True)
    value: str | None = field(2, STRING)


@struct
class SortingColumn:
    column_idx: int = field(1, I32, required=True)
    descending: bool = field(2, BOOL, required=True)
    nulls_first: bool = field(3, BOOL, required=True)


@struct
class PageEncodingStats:
    page_type: int = field(1, I32, required=True)
    encoding: int = field(2, I32, required=True)
    count: int = field(3, I32, required=True)


@struct
class ColumnMetaData:
    type: int = field(1, I32, required=True)
    encodings: list[int] = field(2, list_of(I32), required=True)
    path_in_schema: list[str] = field(3, list_of(STRING), required=True)
    codec: int = field(4, I32, required=True)
    num_values: int = field(5, I64, required=True)
    total_uncompressed_size: int = field(6, I64, required=True)
    total_compressed_size: int = field(7, I64, required=True)
    key_value_metadata: list[KeyValue] | None = field(8, list_of(KeyValue))
    data_page_offset: int = field(9, I64, required=True)
    index_page_offset: int | None = field(10, I64)
    dictionary_page_offset: int | None = field(11, I64)
    statistics: Statistics | None = field(12, Statistics)
    encoding_stats: list[PageEncodingStats] | None = field(13, list_of(PageEncodingStats))
    bloom_filter_offset: int | None = field(14, I64)
    bloom_filter_length: int | None = field(15, I32)
    size_statistics: SizeStatistics | None = field(16, SizeStatistics)
    geospatial_statistics: GeospatialStatistics | None = field(17, GeospatialStatistics)

    @property
    def start(self) -> int:
        """Offset of the chunk's first page in bytes: its dictionary page, if any, or data page.

        A dictionary offset of 0 means that there is none. Some writers place the dictionary page
        after the data pages; the first data page is then first.
        """
        return min(self.dictionary_page_offset or self.data_page_offset, self.data_page_offset)


@struct
class EncryptionWithColumnKey:
    path_in_schema: list[str] = field(1, list_of(STRING), required=True)
    key_metadata: bytes | None = field(2, BINARY)


@struct
class ColumnCryptoMetaData:
    """A union: the key that encrypts a column."""

    ENCRYPTION_WITH_FOOTER_KEY: Empty | None = field(1, Empty)
    ENCRYPTION_WITH_COLUMN_KEY: EncryptionWithColumnKey | None = field(2, EncryptionWithColumnKey)


@struct
class ColumnChunk:
    file_path: str | None = field(1, STRING)
    file_offset: int | None = field(2, I64)
    meta_data: ColumnMetaData | None = field(3, ColumnMetaData)
    offset_index_offset: int | None = field(4, I64)
    offset_index_length: int | None = field(5, I32)
    column_index_offset: int | None = field(6, I64)
    column_index_length: int | None = field(7, I32)
    crypto_metadata: ColumnCryptoMetaData | None = field(8, ColumnCryptoMetaData)
    encrypted_column_metadata: bytes | None = field(9, BINARY)


@struct
class ValueCount:
    """A ``ColumnMetaData`` decoded for its number of values only."""

    num_values: int | None = field(5, I64)


@struct
class CountedChunk:
    """A ``ColumnChunk`` decoded for its number of values only."""

    meta_data: ValueCount | None = field(3, ValueCount)


@struct
class StringBytes:
    """A ``SizeStatistics`` decoded for the length of its strings only."""

    unencoded_byte_array_data_bytes: int | None = field(1, I64)


@struct
class Outline:
    """A ``ColumnMetaData`` decoded for its position, sizes and number of values only."""

    num_values: int = field(5, I64, required=True)
    total_uncompressed_size: int = field(6, I64, required=True)
    total_compressed_size: int = field(7, I64, required=True)
    data_page_offset: int = field(9, I64, required=True)
    dictionary_page_offset: int | None = field(11, I64)
    size_statistics: StringBytes | None = field(16, StringBytes)

    @property
    def start(self) -> int:
        """The same as ``ColumnMetaData.start``."""
        return min(self.dictionary_page_offset or self.data_page_offset, self.data_page_offset)


@struct
class OutlinedChunk:
    """A ``ColumnChunk`` decoded for its ``Outline``, its external file and its encryption only."""

    file_path: str | None = field(1, STRING)
    meta_data: Outline | None = field(3, Outline)
    crypto_metadata: ColumnCryptoMetaData | None = field(8, ColumnCryptoMetaData)


@struct
class BloomPlace:
    """A ``ColumnMetaData`` decoded for the position of its bloom filter only."""

    bloom_filter_offset: int | None = field(14, I64)
    bloom_filter_length: int | None = field(15, I32)


@struct
class IndexPlaces:
    """A ``ColumnChunk`` decoded for the positions of its page indexes and bloom filter only."""

    meta_data: BloomPlace | None = field(3, BloomPlace)
    offset_index_offset: int | None = field(4, I64)
    offset_index_length: int | None = field(5, I32)
    column_index_offset: int | None = field(6, I64)
    column_index_length: int | None = field(7, I32)


@struct
class BoundMetaData:
    """A ``ColumnMetaData`` decoded only for the fields that bind indexes to their file."""

    encodings: list[int] = field(2, list_of(I32), required=True)
    num_values: int = field(5, I64, required=True)
    total_uncompressed_size: int = field(6, I64, required=True)
    total_compressed_size: int = field(7, I64, required=True)
    data_page_offset: int = field(9, I64, required=True)
    dictionary_page_offset: int | None = field(11, I64)
    statistics: Statistics | None = field(12, Statistics)


@struct
class BoundChunk:
    """A ``ColumnChunk`` decoded for its ``BoundMetaData`` only."""

    meta_data: BoundMetaData | None = field(3, BoundMetaData)


@struct
class RowGroup:
    columns: Sequence[ColumnChunk] = field(1, structs_of(ColumnChunk), required=True)
    total_byte_size: int = field(2, I64, required=True)
    num_rows: int = field(3, I64, required=True)
    sorting_columns: list[SortingColumn] | None = field(4, list_of(SortingColumn))
    file_offset: int | None = field(5, I64)
    total_compressed_size: int | None = field(6, I64)
    ordinal: int | None = field(7, I16)


@struct
class ColumnOrder:
    """A union: no member is set if the file uses a newer order."""

    TYPE_ORDER: Empty | None = field(1, Empty)
    IEEE_754_TOTAL_ORDER: Empty | None = field(2, Empty)
    INT96_TIMESTAMP_ORDER: Empty | None = field(3, Empty)


@struct
class AesGcm:
    """``AesGcmV1`` or ``AesGcmCtrV1``, which have the same fields."""

    aad_prefix: bytes | None = field(1, BINARY)
    aad_file_unique: bytes | None = field(2, BINARY)
    supply_aad_prefix: bool | None = field(3, BOOL)


@struct
class EncryptionAlgorithm:
    """A union."""

    AES_GCM_V1: AesGcm | None = field(1, AesGcm)
    AES_GCM_CTR_V1: AesGcm | None = field(2, AesGcm)


@struct
class FileMetaData:
    version: int = field(1, I32, required=True)
    schema: list[SchemaElement] = field(2, list_of(SchemaElement), required=True)
    num_rows: int = field(3, I64, required=True)
    row_groups: Sequence[RowGroup] = field(4, structs_of(RowGroup), required=True)
    key_value_metadata: list[KeyValue] | None = field(5, list_of(KeyValue))
    created_by: str | None = field(6, STRING)
    column_orders: list[ColumnOrder] | None = field(7, list_of(ColumnOrder))
    encryption_algorithm: EncryptionAlgorithm | None = field(8, EncryptionAlgorithm)
    footer_signing_key_metadata: bytes | None = field(9, BINARY)

    def key_value(self, key: str) -> str | None:
        """Returns the value of the last entry with this key, or None."""
        for entry in reversed(self.key_value_metadata or []):
            if entry.key == key:
                return entry.value
        return None


@struct
class DataPageHeader:
    num_values: int = field(1, I32, required=True)
    encoding: int = field(2, I32, required=True)
    definition_level_encoding: int | None = field(3, I32)
    repetition_level_encoding: int | None = field(4, I32)
    statistics: Statistics | None = field(5, Statistics)


@struct
class DictionaryPageHeader:
    num_values: int = field(1, I32, required=True)
    encoding: int = field(2, I32, required=True)
    is_sorted: bool | None = field(3, BOOL)


@struct
class DataPageHeaderV2:
    num_values: int = field(1, I32, required=True)
    num_nulls: int = field(2, I32, required=True)
    num_rows: int = field(3, I32, required=True)
    encoding: int = field(4, I32, required=True)
    definition_levels_byte_length: int = field(5, I32, required=True)
    repetition_levels_byte_length: int = field(6, I32, required=True)
    is_compressed: bool | None = field(7, BOOL)
    statistics: Statistics | None = field(8, Statistics)


@struct
class PageHeader:
    type: int = field(1, I32, required=True)
    uncompressed_page_size: int = field(2, I32, required=True)
    compressed_page_size: int = field(3, I32, required=True)
    crc: int | None = field(4, I32)
    data_page_header: DataPageHeader | None = field(5, DataPageHeader)
    index_page_header: Empty | None = field(6, Empty)
    dictionary_page_header: DictionaryPageHeader | None = field(7, DictionaryPageHeader)
    data_page_header_v2: DataPageHeaderV2 | None = field(8, DataPageHeaderV2)


@struct
class PageLocation:
    offset: int = field(1, I64, required=True)
    compressed_page_size: int = field(2, I32, required=True)
    first_row_index: int = field(3, I64, required=True)


@struct
class OffsetIndexStruct:
    """``OffsetIndex`` as stored. Readers use ``page_index.OffsetIndex``."""

    page_locations: list[PageLocation] = field(1, list_of(PageLocation), required=True)
    unencoded_byte_array_data_bytes: list[int] | None = field(2, list_of(I64))


@struct
class ColumnIndexStruct:
    """``ColumnIndex`` as stored. Readers use ``page_index.ColumnIndex``."""

    null_pages: list[bool] = field(1, list_of(BOOL), required=True)
    min_values: list[bytes] = field(2, list_of(BINARY), required=True)
    max_values: list[bytes] = field(3, list_of(BINARY), required=True)
    boundary_order: int = field(4, I32, required=True)
    null_counts: list[int] | None = field(5, list_of(I64))
    repetition_level_histograms: list[int] | None = field(6, list_of(I64))
    definition_level_histograms: list[int] | None = field(7, list_of(I64))
    nan_counts: list[int] | None = field(8, list_of(I64))


@struct
class BloomFilterAlgorithm:
    """A union."""

    BLOCK: Empty | None = field(1, Empty)


@struct
class BloomFilterHash:
    """A union."""

    XXHASH: Empty | None = field(1, Empty)


@struct
class BloomFilterCompression:
    """A union."""

    UNCOMPRESSED: Empty | None = field(1, Empty)


@struct
class BloomFilterHeader:
    numBytes: int = field(1, I32, required=True)  # noqa: N815 # the specified name
    algorithm: BloomFilterAlgorithm = field(2, BloomFilterAlgorithm, required=True)
    hash: BloomFilterHash = field(3, BloomFilterHash, required=True)
    compression: BloomFilterCompression = field(4, BloomFilterCompression, required=True)
