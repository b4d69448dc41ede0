// Prints the bytes that Apache Kafka's own serializers make:
//   jshell --class-path 'JARS/*' make_serializers.jsh > serializers.json
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;

<T> String line(Serializer<T> serializer, String value, T data) {
    byte[] bytes = serializer.serialize("topic", data);
    return "  {\"serializer\": \"" + serializer.getClass().getName() + "\", \"value\": " + value
        + ", \"bytes\": " + (bytes == null ? "null" : "\"" + HexFormat.of().formatHex(bytes) + "\"") + "}";
}

{
    List<String> lines = new ArrayList<>();
    for (int value : new int[] {0, 1, -1, 258, Integer.MAX_VALUE, Integer.MIN_VALUE})
        lines.add(line(new IntegerSerializer(), "" + value, value));
    for (long value : new long[] {0, 1, -1, 258, Long.MAX_VALUE, Long.MIN_VALUE})
        lines.add(line(new LongSerializer(), "" + value, value));
    for (short value : new short[] {0, 1, -1, 258, Short.MAX_VALUE, Short.MIN_VALUE})
        lines.add(line(new ShortSerializer(), "" + value, value));
    for (double value : new double[] {0.0, -0.0, 1.5, -0.1, Double.MAX_VALUE, Double.MIN_VALUE, 1e300})
        lines.add(line(new DoubleSerializer(), "" + value, value));
    for (double value : new double[] {0.0, -0.0, 1.5, -0.1, Float.MAX_VALUE, Float.MIN_VALUE, 16777217.0, 1e-50})
        lines.add(line(new FloatSerializer(), "" + value, (float) value));
    for (double value : new double[] {Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY}) {
        lines.add(line(new DoubleSerializer(), "\"" + value + "\"", value));
        lines.add(line(new FloatSerializer(), "\"" + value + "\"", (float) value));
    }
    lines.add(line(new BooleanSerializer(), "true", true));
    lines.add(line(new BooleanSerializer(), "false", false));
    for (String value : new String[] {"00000000-0000-0000-0000-000000000000", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"})
        lines.add(line(new UUIDSerializer(), "\"" + value + "\"", UUID.fromString(value)));
    for (String value : new String[] {"", "\u00e9t\u00e9 \ud83c\udf1e"})
        lines.add(line(new StringSerializer(), "\"" + value + "\"", value));
    byte[] bytes = new byte[] {0, 1, (byte) 0xff};
    lines.add(line(new ByteArraySerializer(), "\"0001ff\"", bytes));
    lines.add(line(new ByteBufferSerializer(), "\"0001ff\"", ByteBuffer.wrap(bytes)));
    lines.add(line(new BytesSerializer(), "\"0001ff\"", Bytes.wrap(bytes)));
    lines.add(line(new VoidSerializer(), "null", null));
    System.out.println("[\n" + String.join(",\n", lines) + "\n]");
}
/exit
