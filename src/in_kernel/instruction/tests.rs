//! Tests of the encoding, and of the removal of unreachable instructions.

use expect_test::expect;

use super::{interpreter::Machine, *};

#[test]
fn code_is_encoded_as_the_kernel_takes_it() {
    let mut code = Code::new();
    let end = code.label();
    code.map(Register::R1, MapUse::Tasks);
    code.map(Register::R2, MapUse::Counters);
    code.jump_if(Condition::Equal, Register::R0, -1, end);
    code.push(Instruction::AtomicAdd(Register::R7.at(8), Register::R8));
    code.push(Instruction::CompareExchange(Register::R7.at(16), Register::R8));
    code.store_number(Size::Word, Register::Frame.at(-8), 1);
    code.here(end);
    code.exit(1);
    let program = code.program();
    assert_eq!(program.maps, [(0, MapUse::Tasks), (2, MapUse::Counters)].map(|(at, map)| MapReference { at, map }));
    let words = program.with_maps(|map| if map == MapUse::Tasks { 5 } else { 6 });
    let words: Vec<String> = words.iter().map(|word| format!("{word:016x}")).collect();
    expect![[r#"
        0000000500001118
        0000000000000000
        0000000600002218
        0000000000000000
        ffffffff00030015
        00000000000887db
        000000f1001087db
        00000001fff80a62
        00000001000000b7
        0000000000000095"#]]
    .assert_eq(&words.join("\n"));
}

#[test]
fn what_is_never_reached_is_left_out() {
    let mut code = Code::new();
    let (never, next, end) = (code.label(), code.label(), code.label());
    code.copy(Register::R0, 7);
    code.jump(next);
    code.here(next);
    code.jump_if(Condition::Greater, Register::R0, 8, end);
    code.push(Instruction::Exit);
    code.here(never);
    code.copy(Register::R0, 9);
    code.here(end);
    code.push(Instruction::Exit);
    expect![[r#"
            r0 = 7
        1:
            if r0 > 8 goto 2
            exit
        2:
            exit
    "#]]
    .assert_eq(&code.to_string());
}

#[test]
fn numbers_of_64_bits_are_compared_and_set() {
    for number in [0, 1, u64::MAX, 1 << 31, (1 << 31) - 1, -5i64 as u64, 1 << 40] {
        let mut code = Code::new();
        let equal = code.label();
        code.set(Register::R3, number);
        code.jump_if_number(Condition::Equal, Register::R3, (number, Register::R4), equal);
        code.exit(0);
        code.here(equal);
        code.exit(1);
        assert_eq!(Machine::new((8, 8)).run(&code, &[]), 1, "{number:#x}");
    }
}
