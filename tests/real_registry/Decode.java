import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.serialization.Deserializer;

/** Prints what Java reads, one line per record: Decode.java URL AVRO|JSON:HEX ... */
public class Decode {
  public static void main(String[] arguments) throws Exception {
    Map<String, Deserializer<Object>> deserializers =
        Map.of("AVRO", new AvroKafkaDeserializer<>(), "JSON", new JsonSchemaKafkaDeserializer<>());
    for (Deserializer<Object> each : deserializers.values()) {
      each.configure(
          Map.of(
              "apicurio.registry.url", arguments[0],
              "apicurio.registry.as-confluent", true,
              "apicurio.registry.use-id", "contentId",
              "apicurio.registry.serde.validation-enabled", true),
          false);
    }
    for (int index = 1; index < arguments.length; index++) {
      String[] record = arguments[index].split(":");
      byte[] bytes = HexFormat.of().parseHex(record[1]);
      System.out.println(deserializers.get(record[0]).deserialize("orders", bytes));
    }
  }
}
