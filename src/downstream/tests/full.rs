//! An overloaded host refuses requests before it does any work (`docs/hazards.md` H51).

use serde_json::Value;

use super::support::*;

#[tokio::test]
async fn h51_too_many_requests_in_all_are_turned_away_at_the_door() {
    let house = house_of(stage_with(|limits| limits.pending = 2).await).await;
    let mut first = house.client("2025-11-25").await;
    let mut second = house.again(&first).await;
    let mut third = house.again(&first).await;
    first.tell(&call(1, "slow")).await;
    until(|| house.stage.running() == 1).await;
    assert_eq!(third.post(&call(2, "echo")).await.status, 200, "one more may be served");
    let mut third = house.again(&third).await;
    second.tell(&call(3, "slow")).await;
    until(|| house.stage.running() == 2).await;
    let head = third.post(&call(4, "echo")).await;
    assert_eq!((head.status, head.headers.contains_key("retry-after")), (503, true));
    let answer: Value = serde_json::from_str(&third.body(&head).await).unwrap();
    assert_eq!(answer["id"], 4);
    // Messages that free room still pass.
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#;
    assert_eq!(third.post(cancel).await.status, 202);
    until(|| house.stage.running() == 1).await;
    let mut third = house.again(&third).await;
    until(|| !house.stage.router.clients().is_full()).await;
    assert_eq!(third.post(&call(5, "echo")).await.status, 200);
    house.stage.release();
}
