// Prints the golden values of this folder, made by Apache Kafka's own code:
//   jshell --class-path 'JARS/*' make_golden.jsh > golden.json
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Utils;

String hex(byte[] bytes) { return HexFormat.of().formatHex(bytes); }

String murmur(byte[] key) {
    return "    {\"key\": \"" + hex(key) + "\", \"murmur2\": " + Utils.murmur2(key)
        + ", \"partition_of_7\": " + Utils.toPositive(Utils.murmur2(key)) % 7 + "}";
}

String batch(String name, long producerId, short epoch, int sequence, boolean transactional, SimpleRecord... records) {
    ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
    MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, RecordBatch.MAGIC_VALUE_V2, Compression.NONE,
        TimestampType.CREATE_TIME, 0L, RecordBatch.NO_TIMESTAMP, producerId, epoch, sequence, transactional, false,
        RecordBatch.NO_PARTITION_LEADER_EPOCH, buffer.capacity());
    for (SimpleRecord record : records) builder.append(record);
    ByteBuffer bytes = builder.build().buffer();
    byte[] out = new byte[bytes.remaining()];
    bytes.get(out);
    return "    {\"name\": \"" + name + "\", \"bytes\": \"" + hex(out) + "\"}";
}

byte[] bytes(String text) { return text.getBytes(StandardCharsets.UTF_8); }

{
    List<String> hashes = new ArrayList<>();
    Random random = new Random(1);
    for (int length = 0; length < 20; length++) {
        byte[] key = new byte[length];
        random.nextBytes(key);
        hashes.add(murmur(key));
    }
    hashes.add(murmur(bytes("customer-7")));
    hashes.add(murmur(bytes("\u00e9t\u00e9 \ud83c\udf1e")));
    List<String> batches = new ArrayList<>();
    batches.add(batch("plain", -1L, (short) -1, -1, false, new SimpleRecord(1000L, bytes("k"), bytes("v"))));
    batches.add(batch("nulls", -1L, (short) -1, -1, false,
        new SimpleRecord(1000L, null, bytes("v")), new SimpleRecord(999L, bytes("k"), null), new SimpleRecord(1001L, bytes(""), bytes(""))));
    batches.add(batch("headers", -1L, (short) -1, -1, false,
        new SimpleRecord(1700000000000L, bytes("k"), bytes("v"), new Header[] {
            new RecordHeader("trace", bytes("1")), new RecordHeader("trace", (byte[]) null), new RecordHeader("", bytes("")), new RecordHeader("\u00e9", bytes("2"))})));
    batches.add(batch("idempotent", 4711L, (short) 3, 2147483647, false,
        new SimpleRecord(5L, bytes("a"), bytes("x".repeat(200))), new SimpleRecord(5L + (1L << 40), bytes("b"), bytes("y"))));
    batches.add(batch("transactional", 1L, (short) 0, 0, true, new SimpleRecord(0L, bytes("k"), bytes("v"))));
    System.out.println("{\n  \"hashes\": [\n" + String.join(",\n", hashes) + "\n  ],\n  \"batches\": [\n" + String.join(",\n", batches) + "\n  ]\n}");
}
/exit
