// Prints what java.util.Properties.load(InputStream) makes of some files, their bytes and texts as JSON:
//   jshell make_properties.jsh > properties.json
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.stream.*;

String hex(String text) { return HexFormat.of().formatHex(text.getBytes(StandardCharsets.ISO_8859_1)); }

String quoted(String text) {
    return "\"" + text.chars().mapToObj(c -> c < 32 || c > 126 || c == '"' || c == '\\' ? String.format("\\u%04x", c) : "" + (char) c)
        .collect(Collectors.joining()) + "\"";
}

String sample(String content) throws IOException {
    Properties properties = new Properties();
    String found;
    try {
        properties.load(new ByteArrayInputStream(content.getBytes(StandardCharsets.ISO_8859_1)));
        found = properties.stringPropertyNames().stream().sorted()
            .map(name -> quoted(name) + ": " + quoted(properties.getProperty(name)))
            .collect(Collectors.joining(", ", "{", "}"));
    } catch (IllegalArgumentException error) {
        found = "null";
    }
    return "  {\"content\": \"" + hex(content) + "\", \"properties\": " + found + "}";
}

{
    String[] contents = {
        "", "\n\r\n  \t\n", "# a=1\n! b=2\n  # c=3\n  ! d=4\ne=5", "# no continuation \\\na=1", "a=1\rb=2\r\nc=3",
        "a=1\nb:2\nc 3\nd\t4\ne\f5\nf", "a = 1\nb : 2\nc   =   3  \n  d  4", "a==1\nb:=2\nc =:3\nd : = 4", "=1", ":", "a=\nb", "a=b=c d",
        "a=1,\\\n  2,\\\r\n\t3\nb=4", "a=\\\n\nb=1", "a=1\\\\\nb=2", "a=1\\\\\\\n2", "a=1\\", "a\\\n=1", "a\\\n  b=1", "a=1\\\n# no comment",
        "\\\n# a comment", "a=1\\\n\\\n2",
        "a\\=b=1\na\\:c=2\na\\ d=3\n\\#e=4\n\\!f=5\ng#=6", "a=\\t\\n\\r\\f\\q\\\\\\=", "a=\\u0041\\u00e9b", "a=\\ud83c\\udf1e",
        "a\\u003d=1", "\\u0061=1\na=2", "a=1\na=2", "a=caf\u00e9", "a=\\ u", "a=1 \\\n  ", "a = 1 ! b # c",
        "\na=\\u12", "\na=\\u12g4", "\n\\u=1", "\na=\\uu0041",
    };
    List<String> lines = new ArrayList<>();
    for (String content : contents) lines.add(sample(content));
    System.out.println("[\n" + String.join(",\n", lines) + "\n]");
}
/exit
