use std::time::Instant;
use adverb_wire::icrc::*;
fn main(){
  for n in [256usize,1024,4096]{
    let p=vec![7u8;n+12]; let ip=IpMeta::V4{src:[127,0,0,1],dst:[127,0,0,1],id:0,dont_fragment:true};
    let t=Instant::now(); let mut x=0u32; let k=200_000;
    for i in 0..k { let udp=UdpMeta{src_port:i as u16,dst_port:1,len:n as u16}; x^=icrc(&ip,&udp,&p);} 
    let e=t.elapsed(); println!("icrc {n}: {:.0} ns {:.1} GB/s {x}", e.as_nanos() as f64/k as f64, (n*k) as f64/e.as_secs_f64()/1e9);
    let s=vec![1u8;1<<20]; let mut d=vec![0u8;65536]; let t=Instant::now();
    for i in 0..k { let a=(i*n)%((1<<20)-n); let b=(i*n)%(65536-n); d[b..b+n].copy_from_slice(&s[a..a+n]); }
    let e=t.elapsed(); println!("copy {n}: {:.0} ns {:.1} GB/s", e.as_nanos() as f64/k as f64, (n*k) as f64/e.as_secs_f64()/1e9);
  }
  // raw gso loopback
  use adverb_link::*;
}
