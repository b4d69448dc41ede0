import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.utils.Utils;

/** Reads lines "jaas TEXT" and "properties CONTENT" in base64; prints what Kafka's classes read, or "refused". */
public class ReadTexts {
    public static void main(String[] arguments) throws Exception {
        Path file = Files.createTempFile("read", ".properties");
        for (String line : new String(System.in.readAllBytes(), StandardCharsets.US_ASCII).lines().toList()) {
            String[] parts = line.split(" ", -1);
            byte[] given = Base64.getDecoder().decode(parts[1]);
            try {
                System.out.println(shown(parts[0].equals("jaas") ? jaas(given) : properties(file, given)));
            } catch (IllegalArgumentException error) {
                System.out.println("refused");
            }
        }
        Files.delete(file);
    }

    private static Map<String, String> jaas(byte[] text) {
        Map<String, ?> options = Map.of("sasl.jaas.config", new Password(new String(text, StandardCharsets.UTF_16BE)));
        AppConfigurationEntry entry = JaasContext.loadClientContext(options).configurationEntries().get(0);
        Map<String, String> found = new TreeMap<>();
        entry.getOptions().forEach((name, value) -> { if (name != null) found.put(name, (String) value); });
        found.put("/module", entry.getLoginModuleName());
        return found;
    }

    private static Map<String, String> properties(Path file, byte[] content) throws Exception {
        Files.write(file, content);
        Map<String, String> found = new TreeMap<>();
        Utils.loadProps(file.toString()).forEach((name, value) -> found.put((String) name, (String) value));
        return found;
    }

    private static String shown(Map<String, String> found) {
        return found.entrySet().stream().map(each -> encoded(each.getKey()) + ":" + encoded(each.getValue()))
            .collect(Collectors.joining(","));
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_16BE));
    }
}
