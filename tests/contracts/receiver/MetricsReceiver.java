import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** Writes each push of a client to a file: NUMBER,CLIENT_ID,INSTANCE_ID,TERMINATING. */
public class MetricsReceiver implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private static final AtomicInteger NUMBER = new AtomicInteger();
    private Path folder;

    @Override public void configure(Map<String, ?> configs) { folder = Path.of((String) configs.get("receiver.folder")); }
    @Override public void init(List<KafkaMetric> metrics) { }
    @Override public void metricChange(KafkaMetric metric) { }
    @Override public void metricRemoval(KafkaMetric metric) { }
    @Override public void close() { }
    @Override public ClientTelemetryReceiver clientReceiver() { return this; }

    @Override public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        ByteBuffer data = payload.data().duplicate();
        byte[] bytes = new byte[data.remaining()];
        data.get(bytes);
        String name = String.format("%06d,%s,%s,%s", NUMBER.getAndIncrement(), context.clientId(),
            payload.clientInstanceId(), payload.isTerminating());
        try {
            Path arriving = folder.resolve("." + name);
            Files.write(arriving, bytes);
            Files.move(arriving, folder.resolve(name));
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }
}
