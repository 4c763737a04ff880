import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.api.java.tuple.Tuple7;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * The windows of a bench in Flink's DataStream API, in a local cluster with heap state and without checkpoints.
 *
 * <p>Each line of the standard input is one run: kind, size, slide, gap, bound (all in ms), parallelism, input, output.
 * Records and rows are big-endian longs: key, time, value; and key, start, end, records, total, low, high. The answer is
 * the line "done".
 */
public final class Bench {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] asked = line.split(" ");
            run(asked);
            System.out.println("done");
        }
    }

    private static void run(String[] asked) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(Integer.parseInt(asked[5]));
        environment.getConfig().enableObjectReuse();
        DataStream<Tuple3<Long, Long, Long>> records = environment
                .addSource(new Records(asked[6]), Types.TUPLE(Types.LONG, Types.LONG, Types.LONG))
                .setParallelism(1)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Tuple3<Long, Long, Long>>forBoundedOutOfOrderness(
                                        Duration.ofMillis(Long.parseLong(asked[4])))
                                .withTimestampAssigner((record, before) -> record.f1))
                .setParallelism(1);
        KeyedStream<Tuple3<Long, Long, Long>, Long> keyed = records.keyBy(record -> record.f0, Types.LONG);
        keyed.window(assigner(asked))
                .aggregate(new Sums(), new Named())
                .addSink(new Rows(asked[7]));
        environment.execute();
    }

    private static WindowAssigner<Object, TimeWindow> assigner(String[] asked) {
        Duration size = Duration.ofMillis(Long.parseLong(asked[1]));
        switch (asked[0]) {
            case "tumbling":
                return TumblingEventTimeWindows.of(size);
            case "sliding":
                return SlidingEventTimeWindows.of(size, Duration.ofMillis(Long.parseLong(asked[2])));
            case "session":
                return EventTimeSessionWindows.withGap(Duration.ofMillis(Long.parseLong(asked[3])));
            default:
                throw new IllegalArgumentException("no windows for " + asked[0]);
        }
    }

    static final class Records implements SourceFunction<Tuple3<Long, Long, Long>> {
        private final String place;
        private volatile boolean isRunning = true;

        Records(String place) {
            this.place = place;
        }

        @Override
        public void run(SourceContext<Tuple3<Long, Long, Long>> context) throws Exception {
            try (DataInputStream input =
                    new DataInputStream(new BufferedInputStream(new FileInputStream(place), 1 << 20))) {
                while (isRunning) {
                    context.collect(Tuple3.of(input.readLong(), input.readLong(), input.readLong()));
                }
            } catch (EOFException end) {
                return;
            }
        }

        @Override
        public void cancel() {
            isRunning = false;
        }
    }

    static final class Sums
            implements AggregateFunction<
                    Tuple3<Long, Long, Long>, Tuple4<Long, Long, Long, Long>, Tuple4<Long, Long, Long, Long>> {
        @Override
        public Tuple4<Long, Long, Long, Long> createAccumulator() {
            return Tuple4.of(0L, 0L, Long.MAX_VALUE, Long.MIN_VALUE);
        }

        @Override
        public Tuple4<Long, Long, Long, Long> add(
                Tuple3<Long, Long, Long> record, Tuple4<Long, Long, Long, Long> sums) {
            sums.f0 += 1;
            sums.f1 += record.f2;
            sums.f2 = Math.min(sums.f2, record.f2);
            sums.f3 = Math.max(sums.f3, record.f2);
            return sums;
        }

        @Override
        public Tuple4<Long, Long, Long, Long> getResult(Tuple4<Long, Long, Long, Long> sums) {
            return sums;
        }

        @Override
        public Tuple4<Long, Long, Long, Long> merge(
                Tuple4<Long, Long, Long, Long> one, Tuple4<Long, Long, Long, Long> other) {
            return Tuple4.of(
                    one.f0 + other.f0, one.f1 + other.f1, Math.min(one.f2, other.f2), Math.max(one.f3, other.f3));
        }
    }

    static final class Named
            extends ProcessWindowFunction<
                    Tuple4<Long, Long, Long, Long>,
                    Tuple7<Long, Long, Long, Long, Long, Long, Long>,
                    Long,
                    TimeWindow> {
        @Override
        public void process(
                Long key,
                Context context,
                Iterable<Tuple4<Long, Long, Long, Long>> found,
                Collector<Tuple7<Long, Long, Long, Long, Long, Long, Long>> rows) {
            TimeWindow window = context.window();
            for (Tuple4<Long, Long, Long, Long> sums : found) {
                rows.collect(
                        Tuple7.of(key, window.getStart(), window.getEnd(), sums.f0, sums.f1, sums.f2, sums.f3));
            }
        }
    }

    static final class Rows extends RichSinkFunction<Tuple7<Long, Long, Long, Long, Long, Long, Long>> {
        private final String place;
        private transient DataOutputStream output;

        Rows(String place) {
            this.place = place;
        }

        @Override
        public void open(OpenContext context) throws Exception {
            int number = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            output = new DataOutputStream(
                    new BufferedOutputStream(new FileOutputStream(place + "." + number), 1 << 20));
        }

        @Override
        public void invoke(Tuple7<Long, Long, Long, Long, Long, Long, Long> row, Context context) throws Exception {
            for (int place = 0; place < 7; place++) {
                output.writeLong(row.<Long>getField(place));
            }
        }

        @Override
        public void close() throws Exception {
            if (output != null) {
                output.close();
            }
        }
    }
}
