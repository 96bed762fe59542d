#[test] fn x(){ assert_eq!(ibverbs::pure::fork::ibv_fork_init(),0); let t=ibverbs::verbs::tables::verbs_context(); assert_eq!(t.sz,696); }
