use super::Output;

#[test]
fn a_line_stays_whole_when_the_other_stream_speaks_in_its_middle() {
    let mut output = Output::default();
    output.add(0, b"one\ntw");
    output.add(1, b"warning\n");
    assert_eq!(output.text(), "one\nwarning\ntw");
    output.add(0, b"o\nthree");
    assert_eq!(output.text(), "one\nwarning\ntwo\nthree");
}
