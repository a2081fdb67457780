// A runner of your own in C++: plain rclcpp and crbo_ros's messages, step for step examples/own_runner.py.
//
//   colcon build --packages-select crbo_ros       (it is built where rclcpp is installed)
//   ros2 run crbo_ros own_runner --ros-args -r __ns:=/crbo
//   ./crbo check-runner ros2 run crbo_ros own_runner
//
// It survives no kill (write request_id and the result to disk for that: docs/INTEGRATION.md, section 4).
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>

#include "crbo_ros/msg/episode_return.hpp"
#include "crbo_ros/msg/runner_status.hpp"
#include "crbo_ros/msg/safety_heartbeat.hpp"
#include "crbo_ros/msg/safety_verdict.hpp"
#include "crbo_ros/srv/acknowledge_episode.hpp"
#include "crbo_ros/srv/check_rollout.hpp"
#include "crbo_ros/srv/propose_policy.hpp"
#include "rclcpp/rclcpp.hpp"

using crbo_ros::msg::EpisodeReturn;
using crbo_ros::msg::Proposal;
using crbo_ros::msg::RunnerStatus;
using crbo_ros::msg::SafetyHeartbeat;
using crbo_ros::msg::SafetyVerdict;
using crbo_ros::srv::AcknowledgeEpisode;
using crbo_ros::srv::CheckRollout;
using crbo_ros::srv::ProposePolicy;
using namespace std::chrono_literals;

double now() {  // s, on a clock that nobody can set and that goes on in suspend
  timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

std::string unique() {
  static std::random_device random;
  std::ostringstream text;
  for (int i = 0; i < 4; ++i) text << std::hex << random();
  return text.str();
}

class OwnRunner {
 public:
  OwnRunner() : node_(std::make_shared<rclcpp::Node>("own_runner")), me_(node_->get_fully_qualified_name()) {
    propose_ = node_->create_client<ProposePolicy>("propose_policy");
    check_ = node_->create_client<CheckRollout>("check_rollout");
    acknowledge_ = node_->create_client<AcknowledgeEpisode>("acknowledge_episode");
    const auto latched = rclcpp::QoS(1000).reliable().transient_local();
    returns_ = node_->create_publisher<EpisodeReturn>("episode_return", latched);
    statuses_ = node_->create_publisher<RunnerStatus>("runner_status", latched);
    heartbeats_ = node_->create_subscription<SafetyHeartbeat>(
        "safety_heartbeat", rclcpp::QoS(1).best_effort(), [this](const SafetyHeartbeat& beat) {
          if (now() - heard_at_ > 0.5 || beat.monitor_uid != beat_.monitor_uid)
            heard_since_ = now();  // somebody new: a single heartbeat may be an old one
          beat_ = beat;
          heard_at_ = now();
        });
  }

  int run() {
    std::string request_id = unique();
    int tries = 0;
    while (rclcpp::ok()) {
      auto question = std::make_shared<ProposePolicy::Request>();
      question->runner = me_;
      question->request_id = request_id;
      double asked = 0.0;
      const auto answer = call<ProposePolicy>(propose_, question, asked);
      if (!answer) return 1;
      if (answer->status == ProposePolicy::Response::DONE) {
        RCLCPP_INFO(node_->get_logger(), "done: %s", answer->reason.c_str());
        return 0;
      }
      const Proposal& p = answer->proposal;
      const std::string nonce = unique();
      SafetyVerdict v;
      double asked_verdict = 0.0;
      if (answer->status == ProposePolicy::Response::OK) {
        auto check = std::make_shared<CheckRollout::Request>();
        check->proposal = p;
        check->runner = me_;
        check->nonce = nonce;
        const auto told = call<CheckRollout>(check_, check, asked_verdict);
        if (!told) return 1;
        v = told->verdict;
      }
      const bool mine = v.experiment_uid == p.experiment_uid && v.proposal_id == p.id &&
                        v.theta_hash == p.theta_hash && v.runner == me_ && v.nonce == nonce;
      const bool fresh = mine && now() - asked_verdict < v.valid_for && now() - asked < p.lease;
      uint8_t outcome = mine && v.status == SafetyVerdict::VETOED ? EpisodeReturn::VETOED : 0;
      double value = std::nan("");
      if (fresh && v.status == SafetyVerdict::APPROVED && obstacle(v).empty()) {
        if (++tries > 3) {
          RCLCPP_FATAL(node_->get_logger(), "broken off three times: look at the robot and at the monitor");
          return 1;
        }
        outcome = run_episode(p, v, value);
      }
      if (!outcome) {  // ask again: the same request_id yields the same proposal
        if (answer->status == ProposePolicy::Response::REFUSED) request_id = unique();
        std::this_thread::sleep_for(std::chrono::duration<double>(std::max(answer->retry_after, 0.05)));
        continue;
      }
      EpisodeReturn end;
      end.experiment_uid = p.experiment_uid;
      end.problem = p.problem;
      end.proposal_id = p.id;
      end.theta = p.theta;
      end.runner = me_;
      end.outcome = outcome;
      end.value = value;
      end.episode_uid = nonce;
      end.verdict_id = v.verdict_id;
      returns_->publish(end);  // the monitor learns from it
      auto hand_in = std::make_shared<AcknowledgeEpisode::Request>();
      hand_in->episode = end;
      for (;;) {
        double unused = 0.0;
        const auto receipt = call<AcknowledgeEpisode>(acknowledge_, hand_in, unused);
        if (!receipt) return 1;
        if (receipt->status != AcknowledgeEpisode::Response::RETRY) break;
        std::this_thread::sleep_for(1s);
      }
      request_id = unique();
      tries = 0;
    }
    return 1;
  }

 private:
  // Every call may be repeated, so: again until there is an answer. `asked`: when the one that was answered was sent.
  template <typename Service, typename Client>
  typename Service::Response::SharedPtr call(
      Client& client, const typename Service::Request::SharedPtr& request, double& asked) {
    while (rclcpp::ok()) {
      if (!client->wait_for_service(1s)) continue;
      asked = now();
      auto future = client->async_send_request(request);
      if (rclcpp::spin_until_future_complete(node_, future, 10s) == rclcpp::FutureReturnCode::SUCCESS)
        return future.get();
      client->remove_pending_request(future);
    }
    return nullptr;
  }

  // An approval counts while the monitor that gave it lives and is armed.
  std::string obstacle(const SafetyVerdict& verdict) {
    rclcpp::spin_some(node_);
    const bool alive = now() - heard_at_ < 0.5;
    if (alive && !beat_.armed) return "stop";
    const bool sure = alive && heard_at_ - heard_since_ > 0.05 && beat_.monitor_uid == verdict.monitor_uid;
    return sure ? "" : "the monitor is gone";
  }

  // YOUR ROBOT: outcome and return; 0: broken off. Here: 30 steps, best at theta = 0.7.
  uint8_t run_episode(const Proposal& p, const SafetyVerdict& verdict, double& value) {
    RunnerStatus status;
    status.runner = me_;
    status.experiment_uid = p.experiment_uid;
    status.proposal_id = p.id;
    status.verdict_id = verdict.verdict_id;
    status.state = RunnerStatus::RUNNING;
    for (int step = 0; step < 30; ++step) {
      const std::string why = obstacle(verdict);
      if (!why.empty()) return why == "stop" ? EpisodeReturn::STOPPED : 0;  // your robot's safe state, now
      statuses_->publish(status);                                            // renews the lease
      std::this_thread::sleep_for(20ms);
    }
    value = 0.0;
    for (const double t : p.theta) value -= (t - 0.7) * (t - 0.7);
    return EpisodeReturn::COMPLETED;
  }

  rclcpp::Node::SharedPtr node_;
  std::string me_;
  rclcpp::Client<ProposePolicy>::SharedPtr propose_;
  rclcpp::Client<CheckRollout>::SharedPtr check_;
  rclcpp::Client<AcknowledgeEpisode>::SharedPtr acknowledge_;
  rclcpp::Publisher<EpisodeReturn>::SharedPtr returns_;
  rclcpp::Publisher<RunnerStatus>::SharedPtr statuses_;
  rclcpp::Subscription<SafetyHeartbeat>::SharedPtr heartbeats_;
  SafetyHeartbeat beat_;
  double heard_at_ = -1e9, heard_since_ = 1e9;
};

int main(int argc, char** argv) {
  rclcpp::init(argc, argv);
  const int code = OwnRunner().run();
  rclcpp::shutdown();
  return code;
}
