// Prints the bodies of messages that kio does not have yet, made by Apache Kafka's own classes, of 4.4.0 or newer:
//   jshell --class-path 'JARS/*' make_messages.jsh > messages.json
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.*;

String line(String name, int version, Message message) {
    ByteBuffer bytes = MessageUtil.toByteBufferAccessor(message, (short) version).buffer();
    byte[] out = new byte[bytes.remaining()];
    bytes.get(out);
    return "  \"" + name + "\": \"" + HexFormat.of().formatHex(out) + "\"";
}

{
    Uuid topicId = new Uuid(1L, 2L);
    List<String> lines = new ArrayList<>();
    ApiVersionsRequestData greeting = new ApiVersionsRequestData()
        .setClientSoftwareName("aioproducer").setClientSoftwareVersion("1.2");
    lines.add(line("api_versions request, any broker", 5, greeting));
    lines.add(line("api_versions request, node 7 of a cluster", 5, greeting.duplicate().setClusterId("cluster").setNodeId(7)));
    lines.add(line("api_versions response, another node", 5, new ApiVersionsResponseData().setErrorCode((short) 129)));
    lines.add(line("txn_offset_commit request", 6, new TxnOffsetCommitRequestData()
        .setTransactionalId("x").setGroupId("g").setProducerId(77).setProducerEpoch((short) 8)
        .setGenerationIdOrMemberEpoch(4).setMemberId("m").setGroupInstanceId("i")
        .setTopics(List.of(new TxnOffsetCommitRequestData.TxnOffsetCommitRequestTopic().setTopicId(topicId)
            .setPartitions(List.of(new TxnOffsetCommitRequestData.TxnOffsetCommitRequestPartition()
                .setPartitionIndex(1).setCommittedOffset(1L << 40).setCommittedLeaderEpoch(3).setCommittedMetadata("seen")))))));
    lines.add(line("txn_offset_commit response", 6, new TxnOffsetCommitResponseData().setThrottleTimeMs(5)
        .setTopics(List.of(new TxnOffsetCommitResponseData.TxnOffsetCommitResponseTopic().setTopicId(topicId)
            .setPartitions(List.of(new TxnOffsetCommitResponseData.TxnOffsetCommitResponsePartition()
                .setPartitionIndex(1).setErrorCode((short) 100)))))));
    lines.add(line("delete_groups request", 3, new DeleteGroupsRequestData().setGroupsNames(List.of("g"))));
    DeleteGroupsResponseData.DeletableGroupResultCollection results = new DeleteGroupsResponseData.DeletableGroupResultCollection();
    results.add(new DeleteGroupsResponseData.DeletableGroupResult().setGroupId("g").setErrorCode((short) 69).setErrorMessage("no"));
    lines.add(line("delete_groups response", 3, new DeleteGroupsResponseData().setThrottleTimeMs(5).setResults(results)));
    System.out.println("{\n" + String.join(",\n", lines) + "\n}");
}
/exit
