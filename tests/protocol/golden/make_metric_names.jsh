// Prints the metrics of Kafka's own producer after a send, as JSON: group, name, names of the tags.
//   jshell --class-path 'JARS/*' -R-Dservers=localhost:9092 make_metric_names.jsh > metric_names.json
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

String quoted(String text) { return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\""; }

Map<String, Object> options = Map.of("bootstrap.servers", System.getProperty("servers"), "client.id", "metrics");
var producer = new KafkaProducer<byte[], byte[]>(options, new ByteArraySerializer(), new ByteArraySerializer());
producer.send(new ProducerRecord<byte[], byte[]>("metrics", new byte[100])).get();
producer.flush();
var rows = new TreeSet<String>();
for (var name : producer.metrics().keySet()) {
    String tags = name.tags().keySet().stream().sorted().map(tag -> quoted(tag)).collect(Collectors.joining(", "));
    rows.add(String.join(", ", quoted(name.group()), quoted(name.name()), "[" + tags + "]"));
}
System.out.println(rows.stream().map(row -> "  [" + row + "]").collect(Collectors.joining(",\n", "[\n", "\n]")));
producer.close();
/exit
